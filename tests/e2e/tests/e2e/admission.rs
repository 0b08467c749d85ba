//! The webhooks, called by the API server of a cluster.

use di_api::{DIJob, names};
use di_e2e::{Namespace, container, job, owned_pods};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Value, json};

/// API of jobs in v1alpha1, whose schema is open.
fn legacy(namespace: &Namespace) -> Api<DynamicObject> {
    let resource = ApiResource {
        api_version: format!("{}/{}", names::GROUP, names::LEGACY_VERSION),
        version: names::LEGACY_VERSION.into(),
        ..ApiResource::erase::<DIJob>(&())
    };
    Api::namespaced_with(namespace.client.clone(), &namespace.name, &resource)
}

fn manifest(version: &str, name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": format!("diengine.opendilab.org/{version}"),
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": spec,
    }))
    .unwrap()
}

fn idle_template() -> Value {
    json!({"template": {"spec": {"containers": [container(&["hold"])]}}})
}

#[tokio::test]
async fn invalid_jobs_are_rejected_with_field_and_fix() {
    Namespace::with("refused", |ns| async move {
        let api = legacy(&ns);
        let main = json!({"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}});
        for (spec, message) in [
            (
                json!({"coordinator": idle_template(), "cleanPodPolicy": "Sometimes"}),
                r#"spec.cleanPodPolicy: Unsupported value: "Sometimes": supported values: "None", "Running", "All""#,
            ),
            (
                json!({"collector": idle_template()}),
                "spec.coordinator.template: Required value: the pod that the coordinator runs in",
            ),
            (
                json!({"coordinator": main}),
                "spec.coordinator.template.spec.containers: Required value: one container must be named di-container (the main container); found main",
            ),
        ] {
            let error = api.create(&PostParams::default(), &manifest("v1alpha1", "bad", &spec)).await.unwrap_err();
            let kube::Error::Api(status) = error else { panic!("{error}") };
            assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{}", status.message);
            assert!(status.message.contains(message), "{}", status.message);
        }
        assert!(owned_pods(&ns, "bad").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn defaults_are_set_for_both_versions() {
    Namespace::with("defaults", |ns| async move {
        let legacy = legacy(&ns);
        let current: Api<DIJob> = ns.api();
        for (name, policy, stored) in [
            ("unset", Value::Null, "Running"),
            ("empty", json!(""), "Running"),
            ("seeds", json!("ALL"), "All"),
            ("kept", json!("None"), "None"),
        ] {
            let mut spec = json!({"coordinator": idle_template(), "suspend": true});
            if !policy.is_null() {
                spec["cleanPodPolicy"] = policy;
            }
            let old = legacy
                .create(&PostParams::default(), &manifest("v1alpha1", name, &spec))
                .await
                .unwrap();
            assert_eq!(old.data["spec"]["cleanPodPolicy"], stored, "{name}");
            let new = current.get(name).await.unwrap();
            assert_eq!(json!(new.spec.clean_pod_policy), stored, "{name}");
            assert_eq!((new.spec.backoff_limit, new.spec.suspend), (0, true));
        }
    })
    .await;
}

#[tokio::test]
async fn f12_too_long_job_name_is_rejected() {
    Namespace::with("long", |ns| async move {
        let long = "a".repeat(46);
        let error = ns
            .api::<DIJob>()
            .create(&PostParams::default(), &job(&long, &["hold"]))
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("must be no more than 45 characters"),
            "{error}"
        );
    })
    .await;
}
