//! The CRDs as the API server serves them.

use di_api::DIJob;
use di_apiserver_tests::{Job, Kubelet, Space, eventually, template};
use kube::{
    Resource,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const VERSIONS: [&str; 2] = ["v1alpha1", "v1alpha2"];

fn job(version: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": format!("diengine.opendilab.org/{version}"),
        "kind": "DIJob",
        "metadata": {"generateName": "job-"},
        "spec": spec,
    }))
    .unwrap()
}

#[tokio::test]
async fn both_versions_are_served_with_equal_defaults() {
    let space = Space::new().await;
    for written in VERSIONS {
        let part = json!({"template": template()});
        let spec = json!({"coordinator": part, "collector": part, "learner": part});
        let sent = job(written, &spec);
        let params = PostParams::default();
        let created = space
            .dynamic_jobs(written)
            .create(&params, &sent)
            .await
            .unwrap();
        let name = created.metadata.name.unwrap();
        for read in VERSIONS {
            let found = space.dynamic_jobs(read).get(&name).await.unwrap();
            let spec = &found.data["spec"];
            let defaults = json!([
                spec["cleanPodPolicy"],
                spec["suspend"],
                spec["backoffLimit"],
                spec["collector"]["replicas"],
                spec["learner"]["replicas"],
            ]);
            let wanted = json!(["Running", false, 0, 0, 0]);
            assert_eq!(defaults, wanted, "written as {written}, read as {read}");
            assert_eq!(found.data["spec"]["coordinator"]["template"], template());
        }
    }
}

#[tokio::test]
async fn v1alpha2_schema_rejects_invalid_values() {
    let space = Space::new().await;
    let cases = [
        ("a policy that is none", "cleanPodPolicy", json!("Some")),
        ("a count below zero", "backoffLimit", json!(-1)),
        ("no time at all", "activeDeadlineSeconds", json!(0)),
        (
            "text for a number",
            "collector",
            json!({"template": template(), "replicas": "x"}),
        ),
        ("text for an object", "coordinator", json!("x")),
    ];
    for (description, field, value) in cases {
        let mut spec = json!({"coordinator": {"template": template()}});
        spec[field] = value;
        let sent = job("v1alpha2", &spec);
        let answer = space
            .dynamic_jobs("v1alpha2")
            .create(&PostParams::default(), &sent)
            .await;
        match answer {
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 422, "{description}: {status:?}");
                assert!(status.message.contains(field), "{description}: {status:?}");
            }
            other => panic!("{description}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn empty_string_is_accepted_in_every_version() {
    let space = Space::new().await;
    let mut template = template();
    template["spec"]["containers"][0]["env"] = json!([{"name": "EMPTY", "value": ""}]);
    let spec = json!({
        "group": "", "priorityClassName": "", "cleanPodPolicy": "",
        "coordinator": {"template": template},
    });
    for version in VERSIONS {
        let api = space.dynamic_jobs(version);
        let params = PostParams::default();
        let created = api.create(&params, &job(version, &spec)).await.unwrap();
        assert_eq!(created.data["spec"]["group"], "", "{version}");
    }
}

/// The keys of ports include the protocol, which Kubernetes also sets if it is absent.
#[tokio::test]
async fn port_without_protocol_gets_tcp() {
    let space = Space::new().await;
    let mut template = template();
    let ports = json!([{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}]);
    template["spec"]["containers"][0]["ports"] = ports;
    let spec = json!({"coordinator": {"template": template}});
    let api = space.dynamic_jobs("v1alpha2");
    let sent = job("v1alpha2", &spec);
    let created = api.create(&PostParams::default(), &sent).await.unwrap();
    let pod = &created.data["spec"]["coordinator"]["template"]["spec"];
    let stored = &pod["containers"][0]["ports"];
    assert_eq!(stored[0], json!({"containerPort": 1, "protocol": "TCP"}));
    assert_eq!(stored[1], json!({"containerPort": 1, "protocol": "UDP"}));
}

/// A merged list has no two entries with equal keys. Stored jobs with such a list can be changed.
#[tokio::test]
async fn variable_set_twice_is_rejected_in_new_jobs() {
    let space = Space::new().await;
    let mut template = template();
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    template["spec"]["containers"][0]["env"] = twice;
    let spec = json!({"coordinator": {"template": template}});
    let params = PostParams::default();
    let api = space.dynamic_jobs("v1alpha2");
    let answer = api.create(&params, &job("v1alpha2", &spec)).await;
    match answer {
        Err(kube::Error::Api(status)) => assert!(
            status
                .message
                .contains("containers[0].env[1]: Duplicate value"),
            "{status:?}"
        ),
        other => panic!("{other:?}"),
    }

    let old = space.dynamic_jobs("v1alpha1");
    let stored = old.create(&params, &job("v1alpha1", &spec)).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
    let params = PatchParams::default();
    let name = stored.metadata.name.unwrap();
    let changed = api.patch(&name, &params, &patch).await.unwrap();
    assert_eq!(changed.data["spec"]["suspend"], true);
}

/// Servers before 1.27 have no OpenAPI v3 for `kubectl explain`, and v2 omits the fields of objects
/// that preserve unknown fields. Then `kubectl explain dijob.spec` lists nothing, as
/// `kubectl di doctor` says.
#[tokio::test]
async fn openapi_v2_has_no_fields_of_the_spec() {
    let space = Space::new().await;
    eventually("the definition is published", async || {
        let request = http::Request::get("/openapi/v2").body(Vec::new()).unwrap();
        let document: Value = space.client.request(request).await.unwrap();
        let schemas = document["definitions"].as_object().unwrap();
        let suffix = format!("v1alpha2.{}", DIJob::kind(&()));
        let (_, schema) = schemas
            .iter()
            .find(|(name, _)| name.ends_with(&suffix))
            .ok_or("no DIJob")?;
        assert_eq!(schema["properties"]["spec"]["properties"], Value::Null);
        Ok::<_, String>(())
    })
    .await;
}

#[tokio::test]
async fn clean_up_policy_accepts_every_known_spelling() {
    let space = Space::new().await;
    for policy in ["None", "Running", "All", "ALL", ""] {
        let name = format!("job-{}", policy.to_lowercase())
            .trim_matches('-')
            .to_owned();
        let name = if policy == "ALL" {
            format!("{name}-capital")
        } else {
            name
        };
        space
            .create(&Job::new(&name, 0).clean_pod_policy(policy))
            .await;
    }
}

#[tokio::test]
async fn scale_subresource_reads_and_sets_collectors() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("scaled", 2)).await;
    space.until_settled("scaled").await;

    let jobs = space.jobs();
    let scale = jobs.get_scale("scaled").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    let status = scale.status.unwrap();
    assert_eq!(status.replicas, 2);
    let selector = "dijob-name=scaled,replica-type=collector";
    assert_eq!(status.selector.as_deref(), Some(selector));

    for wanted in [4, 1] {
        let patch = Patch::Merge(json!({"spec": {"replicas": wanted}}));
        let params = PatchParams::default();
        jobs.patch_scale("scaled", &params, &patch).await.unwrap();
        let declared = jobs.get("scaled").await.unwrap().spec.collector.unwrap();
        assert_eq!(declared.replicas, wanted);
        eventually("as many collectors as the scale says", async || {
            let names = space.pods_of("scaled").await;
            let scale = jobs.get_scale("scaled").await.unwrap();
            let seen = scale.status.unwrap().replicas;
            if names.len() == usize::try_from(wanted).unwrap() + 1 && seen == wanted {
                Ok(())
            } else {
                Err(format!("{seen} of {wanted}, {:?}", names.keys()))
            }
        })
        .await;
    }
    manager.stop().await;
}

#[tokio::test]
async fn printer_columns_show_job_progress() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("shown", 2).learners(1)).await;
    space.until_settled("shown").await;
    for version in VERSIONS {
        let url = format!(
            "/apis/diengine.opendilab.org/{version}/namespaces/{}/dijobs/shown",
            space.namespace
        );
        let request = http::Request::get(url)
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())
            .unwrap();
        let table: Value = space.client.request(request).await.unwrap();
        let columns = table["columnDefinitions"].as_array().unwrap();
        let columns: Vec<_> = columns
            .iter()
            .map(|c| (c["name"].as_str().unwrap(), c["priority"].as_i64().unwrap()))
            .collect();
        let wanted = [
            ("Name", 0),
            ("Phase", 0),
            ("Collectors", 0),
            ("Learners", 0),
            ("Restarts", 0),
            ("Age", 0),
            ("Reason", 1),
        ];
        assert_eq!(columns, wanted, "{version}");
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(
            cells[..5],
            json!(["shown", "Running", "2/2", "1/1", 0])
                .as_array()
                .unwrap()[..]
        );
    }
    manager.stop().await;
}
