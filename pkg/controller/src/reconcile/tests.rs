use di_api::{Origin, PlanEntry, Reason, Role};
use di_cache::{JobCache, PodCache};
use http::{Request, Response};
use kube::{Client, client::Body, runtime::reflector::store};
use prometheus_client::registry::Registry;
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::{Metrics, Settings, outbox::Outbox};

/// One whose caches have this pod, of a server that has nothing.
fn context(pod: PodView) -> Context {
    let nothing = service_fn(|_: Request<Body>| async {
        let status = json!({"status": "Failure", "reason": "NotFound", "code": 404, "message": ""});
        let body = Body::from(status.to_string().into_bytes());
        Response::builder().status(404).body(body)
    });
    Context::new(
        Client::new(nothing, "ns"),
        Settings::default(),
        Metrics::new(&mut Registry::default()),
        JobCache::new(store().0),
        Arc::new(PodCache::holding([pod])),
        Arc::default(),
        Outbox::new().0,
    )
}

#[test]
fn no_pod_takes_the_room_of_a_coordinator_that_waits() {
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
    for (refused, rest) in [
        ("j-coordinator", vec![service.clone()]),
        ("another", all.to_vec()),
        ("fresh", vec![all[0].clone(), service]),
    ] {
        let mut actions = all.to_vec();
        take_out(&mut actions, &[("pods", refused.to_owned())].into());
        assert_eq!(actions, rest, "{refused}");
    }
}

#[tokio::test]
async fn what_nothing_comes_of_is_left_to_the_watch_and_tried_ever_later() {
    let version = "diengine.opendilab.org/v1alpha2";
    let job = json!({
        "apiVersion": version, "kind": "DIJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {"coordinator": {"template": {}}},
        "status": {"phase": "Succeeded"},
    });
    let mut job: DIJob = serde_json::from_value(job).unwrap();
    // It is gone, which the watch has yet to show.
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
    let context = context(pod.clone());
    let key = ("ns".to_owned(), "j".to_owned());
    let step = look(&context, &key, &job, None, &HashMap::new());
    assert!(
        matches!(step.actions[..], [Action::EndPod { .. }]),
        "{step:?}"
    );
    job.status = Some(step.status);
    context.jobs.written(job);
    // Of a look at an earlier job of the name nothing is done to this one.
    looks(&context, &key, Some("earlier")).await.unwrap();
    let failed = looks(&context, &key, Some("u")).await.unwrap_err();
    assert!(matches!(failed.error, Error::InVain), "{failed:?}");
    assert!(failed.error.is_conflict(), "nobody need look at it");
    context.pods.deleted(&pod.uid);
    looks(&context, &key, Some("u")).await.unwrap();
}

#[test]
fn what_is_told_is_told_while_it_is_refused_and_then_what_else_is() {
    let trouble = |reason, message: &str, about| Trouble {
        reason,
        message: message.to_owned(),
        about,
    };
    let taken = |message: &str, resource| {
        let about = Some((resource, "j-coordinator".to_owned()));
        trouble(Reason::NameConflict, message, about)
    };
    let (pod, service) = (|| taken("pod", "pods"), || taken("service", "services"));
    let late = || trouble(Reason::Timeout, "late", None);
    let (pods, services): (&[_], &[_]) = (&["pods"], &["services"]);
    let both: &[_] = &["pods", "services"];
    for (told, new, refused, expected) in [
        (None, service(), both, "service"),
        (Some(pod()), service(), both, "pod"),
        (Some(pod()), service(), services, "service"),
        (Some(pod()), taken("pod anew", "pods"), pods, "pod anew"),
        (Some(pod()), late(), pods, "late"),
        (Some(late()), pod(), pods, "pod"),
    ] {
        let named = |resource: &&'static str| (*resource, "j-coordinator".to_owned());
        let refused = Refused {
            creates: refused.iter().map(named).collect(),
            generation: None,
        };
        let told = told_on(told, new, &refused);
        assert_eq!(told.message, expected, "{refused:?}");
    }
}
