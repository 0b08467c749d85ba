use di_api::DIJob;
use di_cache::PodCache;
use di_fixtures::{ApiServerMock, Job, Reply};
use di_plan::PodView;
use serde_json::json;

use super::*;

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
    let step = compute(&observe(&context, &key, job.clone().into()));
    assert!(
        matches!(step.actions[..], [Action::StopPod { .. }]),
        "{step:?}"
    );
    job.status = Some(step.status);
    context.jobs.record_write(job);
    // A reconcile of a previous job of this name does nothing to this one.
    reconcile_decoded(&context, &key, Some("previous"))
        .await
        .unwrap();
    let failed = reconcile_decoded(&context, &key, Some("u"))
        .await
        .unwrap_err();
    assert!(matches!(failed.error, Error::NoProgress), "{failed:?}");
    assert!(failed.error.is_conflict(), "it needs no action of a user");
    context.pods.on_delete(&pod.uid);
    reconcile_decoded(&context, &key, Some("u")).await.unwrap();
}
