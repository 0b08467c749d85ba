//! `manifests/webhook-only` alone: a bad job is refused, and nothing is started of a good one.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::time::Duration;

use di_api::DIJob;
use di_e2e::{Audit, Namespace, job, owned_pods, within};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, PostParams};

#[tokio::test]
async fn bad_jobs_are_refused_and_nothing_is_started() {
    Namespace::with("webhook-only", |ns| async move {
        let mut bad = job("bad", &["hold"]);
        bad.spec
            .coordinator
            .template
            .spec
            .as_mut()
            .unwrap()
            .containers[0]
            .name = "main".into();
        let error = ns
            .api::<DIJob>()
            .create(&PostParams::default(), &bad)
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("one container must be named di-container"),
            "{error}"
        );

        ns.submit(&job("good", &["hold"])).await;
        // Another job's life long, nothing happens: a reconciler would have started it within a second.
        let started = within(
            Duration::from_secs(60),
            "observed",
            || async {
                tokio::time::sleep(Duration::from_secs(5)).await;
                owned_pods(&ns, "good").await
            },
            |_| true,
        )
        .await;
        assert!(started.is_empty());
        assert_eq!(ns.api::<DIJob>().get("good").await.unwrap().status, None);
        assert!(
            ns.api::<Event>()
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .is_empty()
        );
    })
    .await;
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
