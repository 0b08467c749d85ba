//! What is left of a job at its end, and that it stays so.

use std::collections::BTreeSet;

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{
    GPUS, Job, Kubelet, Space, Write, eventually, exists, exit, forbid, template,
};
use serde_json::json;

use crate::states::{self, STATES};

const POLICIES: [&str; 3] = ["None", "Running", "All"];
const ENDS: [(i32, Phase); 2] = [(0, Phase::Succeeded), (3, Phase::Failed)];

fn name(policy: &str, end: Phase) -> String {
    format!("{policy}-{}", end.as_str()).to_lowercase()
}

/// Brings one job of each policy and end to its end, and waits until all is as it should be and counted.
async fn end_all(space: &Space) -> Vec<String> {
    let cases: Vec<_> = POLICIES
        .into_iter()
        .flat_map(|policy| ENDS.map(|end| (policy, end)))
        .collect();
    for (policy, (_, phase)) in &cases {
        space
            .create(&Job::new(&name(policy, *phase), 2).policy(policy))
            .await;
    }
    for (policy, (code, phase)) in &cases {
        let job = name(policy, *phase);
        let plan = space.until_settled(&job).await.plan;
        // One collector is done before the job is.
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
        exists("pods", &left, async || space.pods_of(&job).await).await;
        exists("services", &[], async || space.services_of(&job).await).await;
        space
            .until(&job, "what is left is counted", |status| {
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
        .map(|(policy, (_, phase))| name(policy, *phase))
        .collect()
}

/// A job whose coordinator the quota has no room for, so that none of its pods is made.
async fn block(space: &Space) {
    let mut greedy = template();
    greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    forbid(space, GPUS, greedy.clone()).await;
    let job = Job::new("blocked", 1).with(|spec| spec["coordinator"]["template"] = greedy);
    space.create(&job).await;
    let told = |s: &DIJobStatus| {
        s.reason.as_deref() == Some("QuotaExceeded") && s.collectors_ready.as_deref() == Some("0/1")
    };
    space.until("blocked", "the quota is told of", told).await;
}

#[tokio::test]
async fn f1_what_is_left_at_the_end_is_what_the_policy_says_and_no_restart_touches_it() {
    let space = Space::new().await;
    let space = space.undisturbed("whoever comes next takes back what was told of a fault");
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("first");
    let mut jobs = end_all(&space).await;
    states::make_all(&space).await;
    jobs.extend(STATES.map(str::to_owned));
    block(&space).await;
    manager.stop().await;

    let before = space
        .jobs()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items;
    for agent in ["second", "third"] {
        let manager = space.manager(agent);
        // It has looked at all jobs that were there when it has handled one that came later.
        let later = format!("{agent}-later");
        space.create(&Job::new(&later, 1)).await;
        space.until_settled(&later).await;
        exit(&space.pods(), &format!("{later}-coordinator"), 0).await;
        space.until_phase(&later, Phase::Succeeded).await;
        eventually("the later job is counted", async || {
            let writes = space.writes_of(agent).await;
            let of_services = writes.iter().filter(|w| w.is("delete", "services"));
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
            let touching: Vec<_> = writes.iter().filter(|w| w.concerns(job)).collect();
            assert!(touching.is_empty(), "{job}: {touching:?}");
        }
        // That one is tried again, and nothing else is.
        let tried = |w: &Write| w.is("create", "pods") && w.code == 403;
        let of_blocked = writes.iter().filter(|w| w.concerns("blocked"));
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
