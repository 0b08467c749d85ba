use di_api::{Origin, PlanEntry, Reason, Role};
use di_cache::PodCache;
use di_fixtures::{ApiServerMock, Job, Reply};
use serde_json::json;

use super::*;

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
    let job = Job::test().metadata(json!({"resourceVersion": "1"}));
    let mut job: DIJob = job.phase("Succeeded").build();
    // The API server has deleted this pod; the watch lags.
    let pod = di_fixtures::Pod::test("j-coordinator", "coordinator").phase("Running");
    let pod = PodView::new(&pod.build()).unwrap();
    let mut context = Context::test(ApiServerMock::client(|_| Reply::error(404, "")));
    context.pods = Arc::new(PodCache::with_objects([pod.clone()]));
    let key = ("rl".to_owned(), "j".to_owned());
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
