//! `manifests/webhook-only` alone: a bad job is refused, and nothing is started of a good one.

use di_e2e::{Audit, Namespace, is_refused_when_misnamed, job};

#[tokio::test]
async fn bad_jobs_are_refused_and_nothing_is_started() {
    Namespace::with("webhook-only", |ns| async move {
        is_refused_when_misnamed(&ns).await;
        ns.submit(&job("good", &["hold"])).await;
    })
    .await;
    // A reconciler asks for a lease and for jobs before it does anything else, and the program has been ready for a while.
    let calls = Audit::of_cluster().calls_of("system:serviceaccount:di-system:di-orchestrator");
    assert!(!calls.is_empty());
    for call in calls {
        assert!(!call.forbidden, "{call:?}");
        let own = [
            "secrets",
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
            "subjectaccessreviews",
        ];
        assert!(own.contains(&call.resource.as_str()), "{call:?}");
    }
}
