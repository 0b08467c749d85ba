//! `manifests/webhook-only` alone: a bad job is rejected, and a good one starts nothing.

use di_e2e::{Audit, Namespace, job, wait_for_webhook_rejection};

#[tokio::test]
async fn webhook_only_rejects_bad_jobs_and_starts_nothing() {
    Namespace::with("webhook-only", |ns| async move {
        wait_for_webhook_rejection(&ns).await;
        ns.submit(&job("good", &["hold"])).await;
    })
    .await;
    // A manager would first request the lease and list jobs, and the program has been ready for a
    // while.
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
