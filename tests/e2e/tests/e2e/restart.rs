//! The orchestrator's own pods are killed: running jobs must not be affected.

mod shared_cluster;

use std::collections::BTreeSet;

use di_api::{CleanPodPolicy, DIJob, Phase};
use di_e2e::{
    Namespace, Phases, SYSTEM, dry_run, eventually, exec, is_ready, is_solved, job, logs,
    main_container, owned_pods, owned_services, status, wait_for_phase, wait_for_webhook_rejection,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};

fn pod_uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(ResourceExt::uid).collect()
}

/// Kills pods without grace, and waits until as many new ones are ready.
pub(crate) async fn kill_pods(client: &Client, namespace: &str, selector: &ListParams) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let before = pods.list(selector).await.unwrap().items;
    assert!(!before.is_empty(), "no pods in {namespace}");
    for pod in &before {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&pod.name_any(), &now).await.unwrap();
    }
    let old = pod_uids(&before);
    let recreated = |now: &Vec<Pod>| {
        now.len() == before.len() && pod_uids(now).is_disjoint(&old) && now.iter().all(is_ready)
    };
    let look = || async { pods.list(selector).await.unwrap().items };
    eventually("recreated and ready", look, recreated).await;
}

/// Kills every pod of the orchestrator, and waits until the new ones serve.
pub(crate) async fn kill_orchestrator(ns: &Namespace) {
    let selector = ListParams::default().labels("app.kubernetes.io/name=di-orchestrator");
    kill_pods(&ns.client, SYSTEM, &selector).await;
    // The API server reaches the new pods once kube-proxy knows them.
    let jobs: Api<DIJob> = ns.api();
    let (dry, probe) = (dry_run(), job("probe", &["hold"]));
    eventually("reached", || jobs.create(&dry, &probe), Result::is_ok)
        .await
        .unwrap();
}

/// The demo sample, slowed down so that the test can disturb it.
fn training() -> DIJob {
    let sample = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../manifests/samples/cartpole.yaml"
    );
    let mut job: DIJob = serde_saphyr::from_str(&std::fs::read_to_string(sample).unwrap()).unwrap();
    let coordinator = main_container(&mut job.spec.coordinator.template);
    let args = coordinator["args"].as_array_mut().unwrap();
    let pace = args.iter().position(|arg| arg == "--pace").unwrap();
    args[pace + 1] = "3s".into();
    job
}

#[tokio::test]
async fn training_survives_orchestrator_kills() {
    Namespace::with("killed", |ns| async move {
        let phases = Phases::watch(&ns, "cartpole");
        ns.submit(&training()).await;
        let mut replicas = BTreeSet::new();
        // Right after the submission, while replicas are created, and while it trains.
        for ready in ["", "0/2", "2/2"] {
            eventually(
                "as far",
                || status(&ns, "cartpole"),
                |s| {
                    ready.is_empty()
                        || s.collectors_ready.as_deref() >= Some(ready)
                        || s.phase == Some(Phase::Succeeded)
                },
            )
            .await;
            kill_orchestrator(&ns).await;
            let planned = status(&ns, "cartpole").await.plan;
            // The coordinator may have replaced a slow replica.
            replicas.extend(planned.into_iter().map(|entry| (entry.role, entry.index)));
        }
        wait_for_phase(&ns, "cartpole", Phase::Succeeded).await;
        let alone = |pods: &Vec<Pod>| pods.len() == 1;
        let left = eventually("cleaned up", || owned_pods(&ns, "cartpole"), alone).await;
        assert_eq!(left[0].name_any(), "cartpole-coordinator");
        eventually(
            "services gone",
            || owned_services(&ns, "cartpole"),
            Vec::is_empty,
        )
        .await;
        assert_eq!(
            left[0]
                .status
                .as_ref()
                .unwrap()
                .container_statuses
                .as_ref()
                .unwrap()[0]
                .restart_count,
            0
        );
        assert!(
            replicas.len() <= 3,
            "two collectors and a learner, no more: {replicas:?}"
        );
        let log = logs(&ns, "cartpole-coordinator").await;
        assert!(is_solved(&log), "{log}");
        let ended = |all: &Vec<Phase>| all.last() == Some(&Phase::Succeeded);
        eventually("the last phase is seen", || async { phases.seen() }, ended).await;
    })
    .await;
}

#[tokio::test]
async fn f1_ended_job_without_pods_is_not_run_again() {
    Namespace::with("ended", |ns| async move {
        let mut wanted = job("once", &["hold"]);
        wanted.spec.clean_pod_policy = CleanPodPolicy::All;
        ns.submit(&wanted).await;
        wait_for_phase(&ns, "once", Phase::Running).await;
        exec(&ns, "once-coordinator", &["release", "0"]).await;
        wait_for_phase(&ns, "once", Phase::Succeeded).await;
        eventually("nothing left", || owned_pods(&ns, "once"), Vec::is_empty).await;
        // The status counts are updated later.
        eventually(
            "counted",
            || status(&ns, "once"),
            |s| s.replica_status.is_empty(),
        )
        .await;
        let before = ns.api::<DIJob>().get("once").await.unwrap();
        kill_orchestrator(&ns).await;
        // The new leader reconciles the second job after the first one of the initial list. The API
        // server may still call the killed webhooks.
        let (jobs, second) = (ns.api(), job("second", &["hold"]));
        let new = PostParams::default();
        eventually("accepted", || jobs.create(&new, &second), Result::is_ok)
            .await
            .unwrap();
        wait_for_phase(&ns, "second", Phase::Running).await;
        assert!(owned_pods(&ns, "once").await.is_empty());
        let after = ns.api::<DIJob>().get("once").await.unwrap();
        assert_eq!(
            before.resource_version(),
            after.resource_version(),
            "not a single write"
        );
    })
    .await;
}

#[tokio::test]
async fn broken_certificate_is_reissued() {
    Namespace::with("certificate", |ns| async move {
        let secrets: Api<Secret> = Api::namespaced(ns.client.clone(), SYSTEM);
        let broken = serde_json::json!({"data": {"tls.key": "bm8ga2V5"}});
        let params = PatchParams::default();
        secrets
            .patch("di-webhook-cert", &params, &Patch::Merge(broken))
            .await
            .unwrap();
        kill_orchestrator(&ns).await;
        wait_for_webhook_rejection(&ns).await;
    })
    .await;
}
