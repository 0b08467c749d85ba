//! The tables of invalid and valid jobs, sent to the webhooks by the API server.

use std::{collections::BTreeMap, time::Duration};

use di_apiserver_tests::{Space, Webhooks, eventually};
use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::Status,
};
use serde_json::{Value, json};

use crate::webhooks::validation_table::{
    AT_ONCE, TABLE, submit,
    table::{self, good_of, mistakes_of, set},
};

pub(crate) const VERSIONS: [&str; 2] = ["v1alpha1", "v1alpha2"];

/// Returns the faults of a rejection in the form of the table.
pub(crate) fn causes(status: &Status) -> Vec<String> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let formatted = causes.map(|cause| format!("{}: {}", cause.field, cause.message));
    formatted.collect()
}

/// Whether a webhook rejected it, and not the schema.
fn is_by_webhook(status: &Status) -> bool {
    status.message.starts_with("admission webhook ")
}

#[tokio::test]
async fn invalid_jobs_are_rejected_with_fields_and_messages() {
    let space = Space::new().await;
    let webhooks = Webhooks::start(&space).await;
    let rows = mistakes_of(TABLE).into_iter().map(std::sync::Arc::new);
    let asked = rows.flat_map(|row| VERSIONS.map(|version| (row.clone(), version)));
    let judged = stream::iter(asked).map(|(mistake, version)| {
        let space = &space;
        async move {
            let at = format!("{version}: {} = {}", mistake.at, mistake.value);
            let Err(status) = submit(space, &mistake.object, version).await else {
                return (0, Some(format!("{at} is taken")));
            };
            let ours = is_by_webhook(&status);
            // The schema of one version rejects some; the webhooks reject them in the other.
            let by_whom = ours || mistake.schema;
            let is_reported = !ours || causes(&status) == mistake.faults;
            let form = (status.code, status.reason.as_str()) == (422, "Invalid");
            let wrong = !(by_whom && is_reported && form);
            (
                usize::from(ours),
                wrong.then(|| format!("{at}: {status:#?}")),
            )
        }
    });
    let judged: Vec<_> = judged.buffer_unordered(AT_ONCE).collect().await;
    let ours: usize = judged.iter().map(|(ours, _)| ours).sum();
    let wrong: Vec<_> = judged.into_iter().filter_map(|(_, wrong)| wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ours >= 100, "only {ours} were refused by the webhooks");

    let mut job = table::job();
    for (at, value) in [
        ("/spec/cleanPodPolciy", json!("All")),
        ("/spec/volumes", json!([{"name": "V"}])),
        (
            "/spec/coordinator/template/spec/containers/0/name",
            json!("main"),
        ),
    ] {
        set(&mut job, at, value);
    }
    let status = submit(&space, &job, "v1alpha2").await.unwrap_err();
    let found = causes(&status);
    let fields: Vec<_> = found
        .iter()
        .map(|cause| cause.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "spec.cleanPodPolciy",
            "spec.volumes[0].name",
            "spec.coordinator.template.spec.containers",
        ]
    );
    assert!(
        found.iter().all(|cause| status.message.contains(cause)),
        "{status:?}"
    );

    // Warnings are returned as well, in a header.
    set(&mut job, "/spec/ttlSecondsAfterFinished", json!(0));
    set(&mut job, "/metadata/namespace", json!(space.namespace));
    let path = format!(
        "/apis/diengine.opendilab.org/v1alpha2/namespaces/{}/dijobs?dryRun=All",
        space.namespace
    );
    let request = http::Request::post(path).header("Content-Type", "application/json");
    let request = request.body(job.to_string().into_bytes().into()).unwrap();
    let answer = space.client.send(request).await.unwrap();
    assert_eq!(answer.status(), 422);
    let warned = answer.headers()["warning"].to_str().unwrap();
    assert!(
        warned.contains("spec.ttlSecondsAfterFinished: 0 deletes the job"),
        "{warned}"
    );
    webhooks.stop().await;
}

/// The API server generates names before it calls the webhooks.
#[tokio::test]
async fn too_long_generate_name_is_rejected() {
    let space = Space::new().await;
    let webhooks = Webhooks::start(&space).await;
    let mut job = table::job();
    for (length, fits) in [(40, true), (41, false), (60, false)] {
        let beginning = "a".repeat(length);
        set(&mut job, "/metadata", json!({"generateName": beginning}));
        for version in VERSIONS {
            let answer = submit(&space, &job, version).await;
            assert_eq!(answer.is_ok(), fits, "{answer:?}");
            let Err(status) = answer else { continue };
            let [found] = &causes(&status)[..] else {
                panic!("{status:?}")
            };
            assert!(
                found.starts_with("metadata.generateName: Invalid value: \"aaa"),
                "{found}"
            );
            assert!(
                found.contains("must be no more than 40 characters"),
                "{found}"
            );
        }
    }
    webhooks.stop().await;
}

/// Collects all stored fields that differ from the sent ones, by path without list indices.
fn differences(path: &str, sent: &Value, stored: &Value, found: &mut BTreeMap<String, Value>) {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => {
            for (name, value) in stored {
                let sent = sent.get(name).unwrap_or(&Value::Null);
                differences(&format!("{path}.{name}"), sent, value, found);
            }
            let lost = sent.keys().filter(|name| !stored.contains_key(*name));
            // A null field equals an omitted one.
            for name in lost.filter(|name| !sent[*name].is_null()) {
                found.insert(format!("{path}.{name}"), Value::Null);
            }
        }
        (Value::Array(sent), Value::Array(stored)) if sent.len() == stored.len() => {
            for (sent, stored) in sent.iter().zip(stored) {
                differences(path, sent, stored, found);
            }
        }
        _ if sent != stored => drop(found.insert(path.to_owned(), stored.clone())),
        _ => {}
    }
}

#[tokio::test]
async fn valid_jobs_are_stored_unchanged_with_defaults() {
    let space = Space::new().await;
    let webhooks = Webhooks::start(&space).await;
    let mut defaults = BTreeMap::from([
        ("spec.backoffLimit".to_owned(), json!(0)),
        ("spec.cleanPodPolicy".to_owned(), json!("Running")),
        ("spec.failureTails".to_owned(), json!(true)),
        ("spec.suspend".to_owned(), json!(false)),
    ]);
    for role in ["collector", "learner"] {
        defaults.insert(format!("spec.{role}.replicas"), json!(0));
        defaults.insert(format!("spec.{role}.groups.replicas"), json!(0));
        defaults.insert(format!("spec.{role}.groups.resources"), json!({}));
    }
    for role in ["coordinator", "collector", "learner", "aggregator"] {
        for list in ["containers", "initContainers"] {
            let path = format!("spec.{role}.template.spec.{list}.ports.protocol");
            defaults.insert(path, json!("TCP"));
        }
    }
    let mut filled_in = 0;
    for object in good_of(TABLE) {
        for version in VERSIONS {
            let stored = submit(&space, &object, version).await.unwrap();
            let mut found = BTreeMap::new();
            differences("spec", &object["spec"], &stored["spec"], &mut found);
            for part in ["labels", "annotations"] {
                let sent = &object["metadata"][part];
                assert_eq!(&stored["metadata"][part], sent, "{object}");
            }
            let sent = object["spec"]["cleanPodPolicy"].as_str();
            let policy = match sent {
                Some("ALL") => json!("All"),
                _ => json!("Running"),
            };
            defaults.insert("spec.cleanPodPolicy".to_owned(), policy);
            for (path, value) in found {
                assert_eq!(
                    defaults.get(&path),
                    Some(&value),
                    "{version} {path}: {object}"
                );
                filled_in += 1;
            }
        }
    }
    assert!(filled_in > 0);
    webhooks.stop().await;
}

/// A newer API server may still be configured to send v1beta1.
#[tokio::test]
async fn v1beta1_reviews_get_v1beta1_responses() {
    let space = Space::new().await;
    let mut webhooks = Webhooks::install(&space, Duration::from_secs(3600)).await;
    // Patch before the CA is injected, so that no v1 review is sent.
    let older = json!([{
        "op": "replace", "path": "/webhooks/0/admissionReviewVersions", "value": ["v1beta1"],
    }]);
    let older: Patch<()> = Patch::Json(serde_json::from_value(older).unwrap());
    let (name, params) = (
        format!("di-webhook-{}", space.namespace),
        PatchParams::default(),
    );
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(space.client.clone());
    mutating.patch(&name, &params, &older).await.unwrap();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(space.client.clone());
    validating.patch(&name, &params, &older).await.unwrap();
    webhooks.add().await;
    webhooks.until_called().await;

    let mut job = table::job();
    set(&mut job, "/spec/cleanPodPolicy", json!("ALL"));
    for version in VERSIONS {
        // The mutating webhook fails open, and the API server may see the configuration later.
        eventually("the default is filled in", async || {
            let stored = submit(&space, &job, version).await.unwrap();
            match &stored["spec"]["cleanPodPolicy"] {
                policy if policy == "All" => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await;
    }
    set(&mut job, "/spec/cleanPodPolciy", json!("All"));
    for version in VERSIONS {
        let status = submit(&space, &job, version).await.unwrap_err();
        assert!(is_by_webhook(&status), "{status:?}");
        let found =
            r"spec.cleanPodPolciy: Invalid value: unknown field, did you mean cleanPodPolicy?";
        assert_eq!(causes(&status), [found]);
    }
    webhooks.stop().await;
}
