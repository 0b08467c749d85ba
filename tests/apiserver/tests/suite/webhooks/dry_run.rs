//! The dry run of the pods of new templates. See docs/decisions/0030.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::{Json, Router, routing::post};
use di_admission::{Certificates, Limits, Metrics, PolicyDenials, ServingCert, serve};
use di_apiserver_tests::{SPACE_LABEL, Space, Webhooks, eventually, forbid_pods, template};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::LimitRange,
    },
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::webhooks::validation::causes;

/// The response to a request to the API server.
#[derive(Debug)]
struct Submitted {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

impl Submitted {
    /// Field and message of all causes of a rejection by the webhooks.
    fn causes(&self) -> Vec<String> {
        let status = serde_json::from_value(self.body.clone()).unwrap();
        causes(&status)
    }

    /// The warnings about pods in a dry run, each with the template and the effect.
    fn pod_warnings(&self) -> Vec<&str> {
        let warnings = self.warnings.iter().map(String::as_str);
        warnings.filter(|text| text.contains(": pod ")).collect()
    }
}

/// Creates an object.
async fn submit(space: &Space, object: &Value) -> Submitted {
    let plural = object["kind"].as_str().unwrap().to_lowercase();
    let path = format!(
        "/apis/diengine.opendilab.org/v1alpha2/namespaces/{}/{plural}s",
        space.namespace
    );
    let request = http::Request::post(path).header("Content-Type", "application/json");
    let request = request
        .body(object.to_string().into_bytes().into())
        .unwrap();
    let response = space.client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().unwrap().to_owned());
    let warnings = warnings.collect();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    Submitted {
        code,
        warnings,
        body: serde_json::from_slice(&bytes).unwrap(),
    }
}

fn job(name: &str, spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": {
            "coordinator": {"template": template()},
            "collector": {"template": template(), "replicas": 1},
        },
    });
    let Value::Object(spec) = spec else {
        panic!("{spec}");
    };
    job["spec"].as_object_mut().unwrap().extend(spec);
    job
}

/// What a webhook for pods does.
#[derive(Clone, Copy)]
enum Policy {
    /// Denies all pods.
    Deny,
    /// Never responds.
    Hang,
    /// Adds an annotation.
    Mutate,
}

/// A webhook for the pods of one namespace. Returns the number of its calls.
async fn install_policy(space: &Space, policy: Policy) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let handler = post(move |Json(review): Json<Value>| async move {
        count.fetch_add(1, Relaxed);
        let uid = &review["request"]["uid"];
        let response = match policy {
            Policy::Hang => std::future::pending().await,
            Policy::Deny => {
                json!({"uid": uid, "allowed": false, "status": {"code": 400, "message": "no pods\nbefore noon"}})
            }
            Policy::Mutate => {
                let patch = json!([{"op": "add", "path": "/metadata/annotations", "value": {"injected": "yes"}}]);
                let patch = ByteString(patch.to_string().into_bytes());
                json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch})
            }
        };
        Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
        )
    });
    let hour = Duration::from_secs(3600);
    let names = ["localhost".to_owned()];
    let certificate = ServingCert::issue(&names, hour, None, jiff::Timestamp::now()).unwrap();
    let certificates = Certificates::new_shared();
    certificates.set_certificate(certificate.certified_key().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(serve(
        listener,
        Router::new().route("/", handler),
        certificates,
        Limits::default(),
        Metrics::default(),
        std::future::pending(),
    ));
    let webhook = json!({
        "metadata": {"name": format!("pods-{}", space.namespace)},
        "webhooks": [{
            "name": "pods.example.org",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "url": format!("https://localhost:{port}/"),
                "caBundle": ByteString(certificate.ca.clone()),
            },
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
            "namespaceSelector": {"matchLabels": {SPACE_LABEL: space.namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }],
    });
    let params = PostParams::default();
    if matches!(policy, Policy::Mutate) {
        let api: Api<MutatingWebhookConfiguration> = Api::all(space.client.clone());
        let webhook = serde_json::from_value(webhook).unwrap();
        api.create(&params, &webhook).await.unwrap();
    } else {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(space.client.clone());
        let webhook = serde_json::from_value(webhook).unwrap();
        api.create(&params, &webhook).await.unwrap();
    }
    calls
}

#[tokio::test]
async fn mistake_that_only_server_knows_is_rejected() {
    let space = Space::new().await;
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Warn).await;
    // The webhook itself checks neither handlers of probes nor sources of variables.
    let mut probed = template();
    let main = &mut probed["spec"]["containers"][0];
    main["livenessProbe"] = json!({"periodSeconds": 5});
    main["env"] = json!([
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {}},
    ]);
    let volumes = json!([
        {"name": "v", "emptyDir": {}},
        {"name": "scratch", "ephemeral": {}},
    ]);
    let spec = json!({"volumes": volumes, "collector": {"template": probed}});
    let rejected = submit(&space, &job("wrong", spec)).await;
    assert_eq!(rejected.code, 422, "{rejected:?}");
    assert_eq!(rejected.body["reason"], "Invalid");
    let fields: Vec<_> = rejected.causes();
    let mut fields: Vec<_> = fields
        .iter()
        .map(|cause| cause.split(": ").next().unwrap())
        .collect();
    // API servers of different versions check them in a different order.
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "spec.collector.template.spec.containers[0].env[1].valueFrom",
            "spec.collector.template.spec.containers[0].livenessProbe",
            "spec.volumes[1].ephemeral.volumeClaimTemplate",
        ],
        "{rejected:?}"
    );
    let config = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config"},
        "spec": {"aggregator": {"template": {"spec": {"containers": [{
            "name": "di-container", "image": "i", "livenessProbe": {"periodSeconds": 5},
            "volumeMounts": [{"name": "volume-of-the-job", "mountPath": "/data"}],
        }]}}}},
    });
    let rejected = submit(&space, &config).await;
    let [cause] = &rejected.causes()[..] else {
        panic!("{rejected:?}");
    };
    let field = "spec.aggregator.template.spec.containers[0].livenessProbe: ";
    assert!(cause.starts_with(field), "{cause}");
    webhooks.stop().await;
}

/// `readOnly` of ephemeral volumes was removed in Kubernetes 1.21, so our types do not know it. No
/// other field is unknown to our types and known to all API servers.
#[tokio::test]
async fn field_that_only_server_knows_reaches_the_pod() {
    let space = Space::new().await;
    if space.server.minor_version().await > 20 {
        println!("skipped: only API servers of 1.20 know the field");
        return;
    }
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Warn).await;
    let manager = space.manager("manager");
    let claim = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let mut coordinator = template();
    coordinator["spec"]["volumes"] = json!([
        {"name": "scratch", "ephemeral": {"readOnly": true, "volumeClaimTemplate": claim}},
    ]);
    let spec = json!({"coordinator": {"template": coordinator}});
    let submitted = submit(&space, &job("known", spec)).await;
    assert_eq!(submitted.code, 201, "{submitted:?}");
    assert_eq!(submitted.warnings, [""; 0]);
    let namespace = &space.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/pods/known-coordinator");
    let pod: Value = eventually("the pod is created", async || {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        let pod = space.client.request(request).await;
        pod.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(
        pod["spec"]["volumes"][0]["ephemeral"]["readOnly"], true,
        "{pod}"
    );
    manager.stop().await;
    webhooks.stop().await;
}

#[tokio::test]
async fn quota_and_missing_class_warn_or_refuse() {
    for denials in [PolicyDenials::Warn, PolicyDenials::Refuse] {
        let space = Space::new().await;
        let webhooks = Webhooks::start_with_dry_run(&space, denials).await;
        let classless = job("classless", json!({"priorityClassName": "missing"}));
        let by_class = submit(&space, &classless).await;
        forbid_pods(&space).await;
        let by_quota = submit(&space, &job("full", json!({}))).await;
        for (submitted, text) in [
            (by_class, "no PriorityClass with name missing was found"),
            (by_quota, "exceeded quota: none"),
        ] {
            if denials == PolicyDenials::Warn {
                assert_eq!(submitted.code, 201, "{submitted:?}");
                let warnings = submitted.pod_warnings();
                assert_eq!(warnings.len(), 2, "{submitted:?}");
                let template = "spec.coordinator.template: pod would be denied now: ";
                assert!(warnings[0].contains(template), "{warnings:?}");
                assert!(warnings[0].contains(text), "{warnings:?}");
            } else {
                assert_eq!(submitted.code, 403, "{submitted:?}");
                let message = submitted.body["message"].as_str().unwrap();
                assert!(message.contains("spec.collector.template: "), "{message}");
                assert!(message.contains(text), "{message}");
            }
        }
        webhooks.stop().await;
    }
}

#[tokio::test]
async fn policy_of_other_webhook_warns_or_refuses() {
    for denials in [PolicyDenials::Warn, PolicyDenials::Refuse] {
        let space = Space::new().await;
        let webhooks = Webhooks::start_with_dry_run(&space, denials).await;
        let calls = install_policy(&space, Policy::Deny).await;
        let mut tries = 0;
        let submitted = eventually("the other webhook is called", async || {
            tries += 1;
            let name = format!("denied-{tries}");
            let submitted = submit(&space, &job(&name, json!({}))).await;
            if calls.load(Relaxed) >= 2 {
                Ok(submitted)
            } else {
                Err(format!("{submitted:?}"))
            }
        })
        .await;
        let text = "denied the request: no pods before noon";
        if denials == PolicyDenials::Warn {
            assert_eq!(submitted.code, 201, "{submitted:?}");
            let warnings = submitted.pod_warnings();
            assert_eq!(warnings.len(), 2, "{submitted:?}");
            assert!(warnings[0].contains(text), "{warnings:?}");
        } else {
            assert_eq!(submitted.code, 403, "{submitted:?}");
            let message = submitted.body["message"].as_str().unwrap();
            assert!(message.contains(text), "{message}");
        }
        webhooks.stop().await;
    }
}

#[tokio::test]
async fn hanging_webhook_delays_create_until_deadline_only() {
    let space = Space::new().await;
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Refuse).await;
    let calls = install_policy(&space, Policy::Hang).await;
    let mut tries = 0;
    let (submitted, elapsed) = eventually("the hanging webhook is called", async || {
        tries += 1;
        let started_at = Instant::now();
        let submitted = submit(&space, &job(&format!("slow-{tries}"), json!({}))).await;
        if calls.load(Relaxed) >= 2 {
            Ok((submitted, started_at.elapsed()))
        } else {
            Err(format!("{submitted:?}"))
        }
    })
    .await;
    assert_eq!(submitted.code, 201, "{submitted:?}");
    assert!(elapsed < Duration::from_secs(7), "{elapsed:?}");
    let warnings = submitted.pod_warnings();
    assert_eq!(warnings.len(), 2, "{submitted:?}");
    let text = "pod not validated: the API server did not respond in time";
    assert!(warnings[0].contains(text), "{warnings:?}");
    webhooks.stop().await;
}

/// Defaults and other webhooks take part in the dry run, and change no job.
#[tokio::test]
async fn dry_run_stores_nothing_and_follows_templates_only() {
    let space = Space::new().await;
    let webhooks = Webhooks::start_with_dry_run(&space, PolicyDenials::Warn).await;
    let limits = json!({
        "metadata": {"name": "defaults"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
    });
    let api: Api<LimitRange> = Api::namespaced(space.client.clone(), &space.namespace);
    let limits = serde_json::from_value(limits).unwrap();
    api.create(&PostParams::default(), &limits).await.unwrap();
    let calls = install_policy(&space, Policy::Mutate).await;
    let mut tries = 0;
    let (name, submitted) = eventually("the other webhook is called", async || {
        tries += 1;
        let before = calls.load(Relaxed);
        let name = format!("plain-{tries}");
        let submitted = submit(&space, &job(&name, json!({}))).await;
        if calls.load(Relaxed) == before + 2 {
            Ok((name, submitted))
        } else {
            Err(format!("{submitted:?}"))
        }
    })
    .await;
    assert_eq!(submitted.code, 201, "{submitted:?}");
    for role in ["coordinator", "collector"] {
        assert_eq!(submitted.body["spec"][role]["template"], template());
    }
    let pods = space.pods().list(&ListParams::default()).await.unwrap();
    assert!(pods.items.is_empty(), "{pods:?}");

    let before = calls.load(Relaxed);
    let patch = async |patch: Value| {
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        space.jobs().patch(&name, &params, &patch).await.unwrap();
    };
    patch(json!({"spec": {"collector": {"replicas": 3}, "suspend": true}})).await;
    patch(json!({"metadata": {"labels": {"team": "rl"}}})).await;
    assert_eq!(calls.load(Relaxed), before, "no template changed");
    let other = json!([{"name": "di-container", "image": "other"}]);
    patch(json!({"spec": {"collector": {"template": {"spec": {"containers": other}}}}})).await;
    // The answer for the unchanged coordinator may be cached.
    assert!(calls.load(Relaxed) > before);
    webhooks.stop().await;
}
