use di_api::{Origin, PlanEntry, Reason, Role};
use di_cache::{JobCache, PodCache};
use http::{Request, Response};
use kube::{Client, client::Body, runtime::reflector::store};
use prometheus_client::registry::Registry;
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::{Metrics, Settings, event_queue::EventQueue};

/// A context with this pod in the cache, and an API server that has no object.
fn context_with(pod: PodView) -> Context {
    let empty_server = service_fn(|_: Request<Body>| async {
        let status = json!({"status": "Failure", "reason": "NotFound", "code": 404, "message": ""});
        let body = Body::from(status.to_string().into_bytes());
        Response::builder().status(404).body(body)
    });
    Context::new(
        Client::new(empty_server, "ns"),
        Settings::default(),
        Metrics::new(&mut Registry::default()),
        JobCache::new(store().0),
        Arc::new(PodCache::with_objects([pod])),
        Arc::default(),
        EventQueue::new().0,
    )
}

#[test]
fn deferred_coordinator_defers_all_pods() {
    let pod = |name: &str, role| {
        Action::CreatePod(PlanEntry::new(name.to_owned(), role, Origin::Declared, 0))
    };
    let (coordinator, collector) = (
        pod("j-coordinator", Role::Coordinator),
        pod("fresh", Role::Collector),
    );
    let service = match &collector {
        Action::CreatePod(entry) => Action::CreateService(entry.clone()),
        _ => unreachable!(),
    };
    let all = [coordinator, collector.clone(), service.clone()];
    for (deferred, rest) in [
        ("j-coordinator", vec![service.clone()]),
        ("another", all.to_vec()),
        ("fresh", vec![all[0].clone(), service]),
    ] {
        let mut actions = all.to_vec();
        remove_deferred(&mut actions, &[("pods", deferred.to_owned())].into());
        assert_eq!(actions, rest, "{deferred}");
    }
}

#[tokio::test]
async fn reconcile_without_effect_fails_with_no_progress() {
    let version = "diengine.opendilab.org/v1alpha2";
    let job = json!({
        "apiVersion": version, "kind": "DIJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {"coordinator": {"template": {}}},
        "status": {"phase": "Succeeded"},
    });
    let mut job: DIJob = serde_json::from_value(job).unwrap();
    // The API server has deleted this pod; the watch lags.
    let pod = json!({
        "metadata": {
            "name": "j-coordinator", "namespace": "ns", "uid": "p", "labels": {"dijob-name": "j"},
            "ownerReferences": [
                {"apiVersion": version, "kind": "DIJob", "name": "j", "uid": "u", "controller": true},
            ],
        },
        "status": {"phase": "Running"},
    });
    let pod = PodView::new(&serde_json::from_value(pod).unwrap()).unwrap();
    let context = context_with(pod.clone());
    let key = ("ns".to_owned(), "j".to_owned());
    let step = observe_and_step(&context, &key, &job, None, &HashMap::new());
    assert!(
        matches!(step.actions[..], [Action::StopPod { .. }]),
        "{step:?}"
    );
    job.status = Some(step.status);
    context.jobs.record_write(job);
    // A reconcile of a previous job of this name does nothing to this one.
    reconcile_until_settled(&context, &key, Some("previous"))
        .await
        .unwrap();
    let failed = reconcile_until_settled(&context, &key, Some("u"))
        .await
        .unwrap_err();
    assert!(matches!(failed.error, Error::NoProgress), "{failed:?}");
    assert!(failed.error.is_conflict(), "it needs no action of a user");
    context.pods.on_delete(&pod.uid);
    reconcile_until_settled(&context, &key, Some("u"))
        .await
        .unwrap();
}

#[test]
fn reported_error_stays_until_its_object_is_created() {
    let error = |reason, message: &str, deferred_create| ReconcileError {
        reason,
        message: message.to_owned(),
        deferred_create,
    };
    let conflict = |message: &str, resource| {
        let object = Some((resource, "j-coordinator".to_owned()));
        error(Reason::NameConflict, message, object)
    };
    let (pod, service) = (
        || conflict("pod", "pods"),
        || conflict("service", "services"),
    );
    let late = || error(Reason::Timeout, "late", None);
    let (pods, services): (&[_], &[_]) = (&["pods"], &["services"]);
    let both: &[_] = &["pods", "services"];
    for (reported, new, deferred, expected) in [
        (None, service(), both, "service"),
        (Some(pod()), service(), both, "pod"),
        (Some(pod()), service(), services, "service"),
        (Some(pod()), conflict("same pod", "pods"), pods, "same pod"),
        (Some(pod()), late(), pods, "late"),
        (Some(late()), pod(), pods, "pod"),
    ] {
        let named = |resource: &&'static str| (*resource, "j-coordinator".to_owned());
        let deferred = DeferredCreates {
            objects: deferred.iter().map(named).collect(),
            generation: None,
        };
        let error = stable_error(reported, new, &deferred);
        assert_eq!(error.message, expected, "{deferred:?}");
    }
}
