//! The clean-up policy at the end of a job, and after a restart of the manager.

use std::collections::BTreeSet;

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{
    GPUS, Job, Kubelet, Space, Write, eventually, exit, forbid_resource, template, wait_for_objects,
};
use serde_json::json;

use crate::job_states::{self, STATES};

const POLICIES: [&str; 3] = ["None", "Running", "All"];
const ENDS: [(i32, Phase); 2] = [(0, Phase::Succeeded), (3, Phase::Failed)];

fn job_name(policy: &str, end: Phase) -> String {
    format!("{policy}-{}", end.as_str()).to_lowercase()
}

/// Ends one job for each policy and result, and waits until the status counts the remaining pods.
async fn end_jobs(space: &Space) -> Vec<String> {
    let cases: Vec<_> = POLICIES
        .into_iter()
        .flat_map(|policy| ENDS.map(|end| (policy, end)))
        .collect();
    for (policy, (_, phase)) in &cases {
        space
            .create(&Job::new(&job_name(policy, *phase), 2).clean_pod_policy(policy))
            .await;
    }
    for (policy, (code, phase)) in &cases {
        let job = job_name(policy, *phase);
        let plan = space.until_settled(&job).await.plan;
        // One collector succeeds before the job ends.
        exit(&space.pods(), &plan[0].name, 0).await;
        space
            .until(&job, "a collector is done", |s| {
                s.replica_status["Collector"].succeeded == 1
            })
            .await;
        let coordinator = format!("{job}-coordinator");
        exit(&space.pods(), &coordinator, *code).await;
        space.until_phase(&job, *phase).await;
        let left = match *policy {
            "None" => vec![coordinator, plan[0].name.clone(), plan[1].name.clone()],
            "Running" => vec![coordinator, plan[0].name.clone()],
            _ => vec![],
        };
        wait_for_objects("pods", &left, async || space.pods_of(&job).await).await;
        wait_for_objects("services", &[], async || space.services_of(&job).await).await;
        space
            .until(&job, "the remaining pods are counted", |status| {
                let counted = status
                    .replica_status
                    .values()
                    .map(|n| n.active + n.pending + n.succeeded + n.failed);
                usize::try_from(counted.sum::<i32>()).unwrap() == left.len()
                    && status.plan.is_empty()
            })
            .await;
    }
    cases
        .iter()
        .map(|(policy, (_, phase))| job_name(policy, *phase))
        .collect()
}

/// Creates a job whose coordinator exceeds the quota, so that no pod is created.
async fn create_blocked_job(space: &Space) {
    let mut greedy = template();
    greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    forbid_resource(space, GPUS, greedy.clone()).await;
    let job = Job::new("blocked", 1).with(|spec| spec["coordinator"]["template"] = greedy);
    space.create(&job).await;
    let is_reported = |s: &DIJobStatus| {
        s.reason.as_deref() == Some("QuotaExceeded") && s.collectors_ready.as_deref() == Some("0/1")
    };
    space
        .until("blocked", "the quota is reported", is_reported)
        .await;
}

#[tokio::test]
async fn f1_clean_up_policy_holds_and_restart_touches_nothing() {
    let space = Space::new().await;
    let space =
        space.without_random_faults("the next manager clears the conditions of a random fault");
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("first");
    let mut jobs = end_jobs(&space).await;
    job_states::make_all(&space).await;
    jobs.extend(STATES.map(str::to_owned));
    create_blocked_job(&space).await;
    manager.stop().await;

    let before = space
        .jobs()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items;
    for agent in ["second", "third"] {
        let manager = space.manager(agent);
        // Once the manager has handled a later job, it has reconciled all earlier ones.
        let later = format!("{agent}-later");
        space.create(&Job::new(&later, 1)).await;
        space.until_settled(&later).await;
        exit(&space.pods(), &format!("{later}-coordinator"), 0).await;
        space.until_phase(&later, Phase::Succeeded).await;
        eventually("the later job is counted", async || {
            let writes = space.writes_of(agent).await;
            let of_services = writes.iter().filter(|w| w.is_call("delete", "services"));
            let deleted: BTreeSet<_> = of_services.map(|write| &write.name).collect();
            if deleted.len() == 2 {
                Ok(())
            } else {
                Err(format!("{deleted:?}"))
            }
        })
        .await;
        manager.stop().await;
        let writes = space.writes_of(agent).await;
        for job in &jobs {
            let touching: Vec<_> = writes.iter().filter(|w| w.concerns_job(job)).collect();
            assert!(touching.is_empty(), "{job}: {touching:?}");
        }
        // Only the create that exceeded the quota is tried again.
        let tried = |w: &Write| w.is_call("create", "pods") && w.code == 403;
        let of_blocked = writes.iter().filter(|w| w.concerns_job("blocked"));
        let more: Vec<_> = of_blocked
            .filter(|w| !tried(w) && w.resource != "events")
            .collect();
        assert!(more.is_empty(), "{more:?}");
    }
    for job in before {
        let now = space
            .jobs()
            .get(job.metadata.name.as_ref().unwrap())
            .await
            .unwrap();
        assert_eq!(now, job);
    }
}
