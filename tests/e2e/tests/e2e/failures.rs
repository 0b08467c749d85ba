//! Failures on a real kubelet: their reasons, their logs, and what remains of the pods.

use di_api::{ConditionType, DIJobStatus, Phase, Reason, is_condition_true};
use di_e2e::{
    Namespace, eventually, idle_job, is_running, job, kubectl_di, logs, main_container, owned_pods,
    pod_spec, status, wait_for_phase,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::lifecycle::{end_pod, wait_for_running_pods};

fn message_of(status: &DIJobStatus, type_: &str) -> String {
    let condition = status.conditions.iter().find(|c| c.type_ == type_);
    condition.unwrap().message.clone()
}

#[tokio::test]
async fn wrong_flag_fails_job_with_its_own_message() {
    Namespace::with("wrong-flag", |ns| async move {
        ns.submit(&job("typo", &["hold", "--pcae"])).await;
        let ended = wait_for_phase(&ns, "typo", Phase::Failed).await;
        let message = message_of(&ended, "Failed");
        let expected = "the coordinator failed: Error (exit code 2): error: ";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains("--pcae"), "{message}");
        ns.api::<Pod>()
            .delete("typo-coordinator", &DeleteParams::default())
            .await
            .unwrap();
        eventually("no pod", || owned_pods(&ns, "typo"), Vec::is_empty).await;
        for words in [
            &["failures", "typo"][..],
            &["describe", "typo"],
            &["logs", "typo"],
            &["events", "typo"],
            &["wait", "typo", "--for=phase=Succeeded"],
        ] {
            let printed = kubectl_di(&ns, words).await;
            let text = format!("{}{}", printed.stdout, printed.stderr);
            assert!(text.contains("--pcae"), "{printed:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn crash_looping_init_container_is_reported_throughout() {
    Namespace::with("init-loop", |ns| async move {
        let mut wanted = job("loop", &["hold"]);
        let template = &mut wanted.spec.coordinator.template;
        let mut init = main_container(template).clone();
        init["name"] = json!("data");
        init["args"] = json!(["hold", "--no-such-flag"]);
        let spec = pod_spec(template);
        spec["initContainers"] = json!([init]);
        spec["restartPolicy"] = json!("OnFailure");
        ns.submit(&wanted).await;
        let is_reported =
            |s: &DIJobStatus| s.reason.as_deref() == Some(Reason::CrashLoopBackOff.as_str());
        eventually("reported", || status(&ns, "loop"), is_reported).await;
        // One more crash, with the restart before.
        let restarts = |pods: &Vec<Pod>| {
            let status = pods.first().and_then(|pod| pod.status.as_ref());
            let mut inits = status
                .iter()
                .flat_map(|s| s.init_container_statuses.iter().flatten());
            inits.next().map_or(0, |init| init.restart_count)
        };
        let watched = async || {
            let now = status(&ns, "loop").await;
            assert!(is_reported(&now), "{now:?}");
            assert!(!is_condition_true(
                &now.conditions,
                ConditionType::ReplicasReady
            ));
            owned_pods(&ns, "loop").await
        };
        eventually("restarted", watched, |pods| restarts(pods) >= 3).await;
        let listed = kubectl_di(&ns, &["replicas", "list", "loop", "--no-headers"]).await;
        // Name, role, index, origin, status, ready, restarts.
        let restarts = listed.stdout.split_whitespace().nth(6);
        let restarts = restarts.and_then(|restarts| restarts.parse().ok());
        assert!(restarts.unwrap_or(0) >= 3, "{listed:?}");
    })
    .await;
}

#[tokio::test]
async fn ended_replicas_with_sidecar_free_their_node() {
    Namespace::with("sidecars", |ns| async move {
        let mut wanted = idle_job("mesh", 2, 0);
        let template = &mut wanted.spec.collector.as_mut().unwrap().template;
        let mut sidecar = main_container(template).clone();
        sidecar["name"] = json!("proxy");
        sidecar["env"] = json!([{"name": "COLLECTOR_PORT", "value": "22299"}]);
        let containers = &mut pod_spec(template)["containers"];
        containers.as_array_mut().unwrap().push(sidecar);
        ns.submit(&wanted).await;
        let pods = wait_for_running_pods(&ns, "mesh", 3).await;
        let collectors = pods.iter().map(ResourceExt::name_any);
        let collectors: Vec<_> = collectors
            .filter(|name| name.contains("collector"))
            .collect();
        for (name, code) in collectors.iter().zip(["0", "1"]) {
            end_pod(&ns, name, code).await;
        }
        let counts = |s: &DIJobStatus| s.collectors_ready.as_deref() == Some("1/2 (1 done)");
        eventually("replaced", || status(&ns, "mesh"), counts).await;
        let ended = |all: &Vec<Pod>| {
            let ours = all
                .iter()
                .filter(|pod| collectors.contains(&pod.name_any()));
            ours.clone().count() == 2 && !ours.clone().any(is_running)
        };
        eventually("ended and kept", || owned_pods(&ns, "mesh"), ended).await;
        for name in &collectors {
            assert!(logs(&ns, name).await.contains("idle"), "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn finalizer_of_deleted_coordinator_is_reported() {
    Namespace::with("finalizer", |ns| async move {
        let mut wanted = job("kept", &["hold"]);
        wanted.spec.backoff_limit = 1;
        ns.submit(&wanted).await;
        wait_for_phase(&ns, "kept", Phase::Running).await;
        let pods: Api<Pod> = ns.api();
        let patch = async |finalizers: serde_json::Value| {
            let patch = json!({"metadata": {"finalizers": finalizers}});
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            pods.patch("kept-coordinator", &params, &patch)
                .await
                .unwrap();
        };
        patch(json!(["example.com/hold"])).await;
        let params = DeleteParams::default().grace_period(1);
        pods.delete("kept-coordinator", &params).await.unwrap();
        let is_reported =
            |s: &DIJobStatus| s.reason.as_deref() == Some(Reason::FinalizersRemain.as_str());
        let reported = eventually("reported", || status(&ns, "kept"), is_reported).await;
        let message = message_of(&reported, "ReplicasReady");
        assert!(
            message.contains("kept-coordinator") && message.contains("example.com/hold"),
            "{message}"
        );
        patch(json!(null)).await;
        let is_back = |s: &DIJobStatus| s.phase == Some(Phase::Running) && s.reason.is_none();
        eventually("running again", || status(&ns, "kept"), is_back).await;
    })
    .await;
}

#[tokio::test]
async fn collector_memory_grows_until_it_runs() {
    Namespace::with("memory-growth", |ns| async move {
        let mut wanted = idle_job("grows", 1, 0);
        let main = main_container(&mut wanted.spec.collector.as_mut().unwrap().template);
        main["args"] = json!(["hold", "--memory", "100"]);
        main["resources"] = json!({"limits": {"memory": "32Mi"}});
        let rule = json!([{
            "name": "oom", "roles": ["collector"], "onReasons": ["OOMKilled"], "limit": 5,
            "growMemory": {"factor": "2", "limit": "256Mi"},
        }]);
        wanted.spec.failure_rules = serde_json::from_value(rule).unwrap();
        ns.submit(&wanted).await;
        let memory = |s: &DIJobStatus| {
            let entry = s.plan.iter().find(|entry| entry.is_wanted())?;
            Some(entry.memory.as_ref()?.0.clone())
        };
        let runs = |s: &DIJobStatus| {
            s.collectors_ready.as_deref() == Some("1/1") && memory(s).as_deref() == Some("128Mi")
        };
        let ready = eventually("enough memory", || status(&ns, "grows"), runs).await;
        assert_eq!(ready.failures[0].reason, "OOMKilled");
    })
    .await;
}
