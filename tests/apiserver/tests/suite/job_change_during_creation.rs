//! Jobs that change while their pods are being created.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Job, ProxyAction, RecordedRequest, Space, eventually};
use di_controller::Settings;
use http::Method;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::faults::job_run::ProxiedManager;

const COLLECTORS: usize = 60;

/// Changes a job while some creates are pending, and resumes them once the manager has seen the
/// change. Returns how many pods were created until the status satisfies `settled`.
async fn pods_created_after_change(
    spec: Value,
    description: &str,
    settled: impl Fn(&DIJobStatus) -> bool,
) -> usize {
    let managed = ProxiedManager::start_in(Space::new().await, Settings::default());
    let (space, proxy) = (&managed.space, &managed.proxy);
    let under_way = Arc::new(Semaphore::new(0));
    let (begun, pods) = (under_way.clone(), AtomicUsize::new(0));
    proxy.set_rule(move |request| {
        let is_pod = request.method == Method::POST && request.path().ends_with("/pods");
        if !is_pod || pods.fetch_add(1, Relaxed) == 0 {
            return ProxyAction::Served;
        }
        begun.add_permits(1);
        ProxyAction::Paused
    });
    space.create(&Job::new("busy", COLLECTORS)).await;
    under_way.acquire().await.unwrap().forget();

    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    space.jobs().patch("busy", &params, &patch).await.unwrap();
    // Both jobs come on the same watch.
    space.create(&Job::new("later", 0)).await;
    eventually("the manager has seen a later job", async || {
        let all = proxy.requests();
        let mut paths = all.iter().map(RecordedRequest::path);
        if paths.any(|path| path.ends_with("/later/status")) {
            Ok(())
        } else {
            Err(format!("{} requests", all.len()))
        }
    })
    .await;
    proxy.set_rule(|_| ProxyAction::Served);
    proxy.resume_paused();

    space.until("busy", description, settled).await;
    let writes = space.writes().await;
    managed.manager.stop().await;
    let pods = writes
        .iter()
        .filter(|write| write.is_call("create", "pods"));
    pods.filter(|write| write.concerns_job("busy")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn undesired_pods_are_not_created_after_job_change() {
    let suspended = |status: &DIJobStatus| status.phase == Some(Phase::Suspended);
    let small = |status: &DIJobStatus| status.plan.len() == 2;
    let (suspended, small) = tokio::join!(
        pods_created_after_change(json!({"suspend": true}), "the job is suspended", suspended),
        pods_created_after_change(
            json!({"collector": {"replicas": 2}}),
            "the plan has two collectors",
            small
        ),
    );
    for made in [suspended, small] {
        // The coordinator and the pending creates.
        assert!((2..COLLECTORS / 2).contains(&made), "{made}");
    }
}
