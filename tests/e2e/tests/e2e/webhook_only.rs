//! `manifests/webhook-only` alone: a bad job is refused, and nothing is started of a good one.

use di_e2e::{Audit, Namespace, job, wait_for_webhook_rejection};

#[tokio::test]
async fn webhook_only_rejects_bad_jobs_and_starts_nothing() {
    Namespace::with("webhook-only", |ns| async move {
        wait_for_webhook_rejection(&ns).await;
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
