//! The manager and Kueue's controller are killed at random moments.

use std::{collections::BTreeSet, time::Duration};

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{
    Kubelet, Kueue, Manager, Space, condition_reason, exit, queued_job, queued_job_with_priority,
};
use kube::api::DynamicObject;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;
use tokio::time::sleep;

use super::{base_workload, plan_names, set_collectors, wait_until_queued};
use crate::two_managers::pod_create_counts;

/// Number of kills after each change.
const KILLS: usize = 6;
/// Limit of the time that a manager lives, which is about as long as a job takes to be admitted.
const MAX_LIFE_MS: u64 = 500;

/// A namespace whose manager is killed.
struct Disturbed {
    space: Space,
    kueue: Kueue,
    manager: Option<Manager>,
    random: StdRng,
}

impl Disturbed {
    /// Kills the manager at random moments while it reacts to a change. The last one stays alive.
    async fn kill_managers(&mut self) {
        for kill in 0..KILLS {
            let life = self.random.random_range(0..MAX_LIFE_MS);
            sleep(Duration::from_millis(life)).await;
            if let Some(manager) = self.manager.take() {
                manager.kill().await;
            }
            if kill % 2 == 1 {
                self.kueue.restart_controller();
            }
            self.manager = Some(self.space.manager("manager"));
        }
    }
}

/// Number of pods of a pod set of a Workload.
fn pod_set_count(workload: &DynamicObject, name: &str) -> Option<i64> {
    let pod_sets = workload.data["spec"]["podSets"].as_array();
    let is_named = |pod_set: &&Value| pod_set["name"] == name;
    pod_sets.into_iter().flatten().find(is_named)?["count"].as_i64()
}

#[tokio::test]
async fn killed_managers_keep_quota_and_names() {
    let space = Space::new().await;
    let space = space.without_random_faults("it counts the creates of each pod");
    let kueue = Kueue::start(&space, 4).await;
    let _kubelet = Kubelet::running(&space);
    let class = kueue.create_priority_class("urgent", 1000).await;
    let mut disturbed = Disturbed {
        manager: Some(space.manager("manager")),
        space: space.clone(),
        kueue,
        random: StdRng::seed_from_u64(37),
    };
    let low = space.create(&queued_job("low", 2)).await;
    let base = base_workload(&low);
    disturbed.kill_managers().await;
    space.until_settled("low").await;

    set_collectors(&space, "low", 3).await;
    disturbed.kill_managers().await;
    let has_three = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("3/3");
    space.until("low", "three collectors", has_three).await;
    let before = space.until_settled("low").await;

    let urgent = queued_job_with_priority("urgent", 3, &class);
    space.create(&urgent).await;
    disturbed.kill_managers().await;
    space.until_settled("urgent").await;
    wait_until_queued(&space, "low", "QueuePreempted").await;
    disturbed
        .kueue
        .until_workload(&base, "it has all declared collectors", |workload| {
            pod_set_count(workload, "collector") == Some(3)
        })
        .await;

    exit(&space.pods(), "urgent-coordinator", 0).await;
    disturbed.kill_managers().await;
    let after = space.until_settled("low").await;
    assert_eq!(plan_names(&after), plan_names(&before));
    assert_eq!(after.restarts, 0);
    space.until_phase("urgent", Phase::Succeeded).await;

    exit(&space.pods(), "low-coordinator", 0).await;
    disturbed.kill_managers().await;
    space.until_phase("low", Phase::Succeeded).await;
    disturbed
        .kueue
        .until_workload(&base, "it is finished", |workload| {
            condition_reason(workload, "Finished") == Some("Succeeded")
        })
        .await;
    if let Some(manager) = disturbed.manager {
        manager.stop().await;
    }
    disturbed.kueue.check();
    check_created_pods(&space, &plan_names(&before)).await;
}

/// Checks that each pod of `low` was created at most twice, and each one of `urgent` once. The audit
/// log does not show a create whose manager was killed before the response.
async fn check_created_pods(space: &Space, collectors: &BTreeSet<&str>) {
    let mut created = pod_create_counts(space).await;
    let low = collectors.iter().copied().chain(["low-coordinator"]);
    for name in low {
        assert!(created.remove(name) <= Some(2), "{name}");
    }
    let is_of_urgent = |name: &String| name.starts_with("urgent-");
    assert!(created.keys().all(is_of_urgent), "{created:?}");
    assert!(created.values().all(|times| *times == 1), "{created:?}");
}
