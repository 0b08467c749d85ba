//! The manager is killed at random moments and after each of its writes, and Kueue's controller
//! after each of its writes.

use std::{collections::BTreeMap, time::Duration};

use di_api::{DIJobStatus, Phase, QueueState};
use di_apiserver_tests::{
    Endpoint, Kubelet, Kueue, Manager, Space, eventually, exit, queued_job,
    queued_job_with_priority,
};
use di_controller::Settings;
use kube::api::DynamicObject;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    base_workload, find_entry, plan_names, runs_with, set_collectors, wait_until_finished,
    wait_until_queued,
};
use crate::{
    hanging_proxy::{HangingProxy, run_short_lives},
    two_managers::pod_create_counts,
};

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
    let first_pods = pod_uids(&space, &before).await;

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
    let second_pods = pod_uids(&space, &after).await;
    assert_eq!(after.restarts, 0);
    space.until_phase("urgent", Phase::Succeeded).await;

    exit(&space.pods(), "low-coordinator", 0).await;
    disturbed.kill_managers().await;
    space.until_phase("low", Phase::Succeeded).await;
    wait_until_finished(&disturbed.kueue, &base).await;
    if let Some(manager) = disturbed.manager {
        manager.stop().await;
    }
    disturbed.kueue.check().await;
    check_created_pods(&space, &first_pods, &second_pods).await;
}

/// Lets short-lived managers react until a job runs with these ready collectors, and then another
/// one until it has settled. Returns its status.
async fn run_job(space: &Space, job: &str, collectors: &str) -> DIJobStatus {
    let is_running = |status: &DIJobStatus| runs_with(status, collectors);
    run_short_lives(space, &Settings::default(), job, is_running).await;
    let manager = space.manager("manager");
    let status = space.until_settled(job).await;
    manager.stop().await;
    status
}

#[tokio::test]
async fn managers_killed_after_each_write_keep_quota_and_names() {
    let space = Space::new().await;
    let space = space.without_random_faults("it counts the writes of each manager");
    let kueue = Kueue::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let class = kueue.create_priority_class("urgent", 1000).await;
    let low = space.create(&queued_job("low", 2)).await;
    let before = run_job(&space, "low", "2/2").await;
    let first_pods = pod_uids(&space, &before).await;

    let urgent = queued_job_with_priority("urgent", 1, &class);
    space.create(&urgent).await;
    run_job(&space, "urgent", "1/1").await;
    wait_until_queued(&space, "low", "QueuePreempted").await;
    exit(&space.pods(), "urgent-coordinator", 0).await;
    let after = run_job(&space, "low", "2/2").await;
    let second_pods = pod_uids(&space, &after).await;
    assert_eq!(plan_names(&after), plan_names(&before));
    assert_eq!(after.restarts, 0);

    exit(&space.pods(), "low-coordinator", 0).await;
    let has_succeeded = |status: &DIJobStatus| status.phase == Some(Phase::Succeeded);
    run_short_lives(&space, &Settings::default(), "low", has_succeeded).await;
    let manager = space.manager("manager");
    space.until_phase("urgent", Phase::Succeeded).await;
    wait_until_finished(&kueue, &base_workload(&low)).await;
    manager.stop().await;
    kueue.check().await;
    check_created_pods(&space, &first_pods, &second_pods).await;
}

/// UIDs of the pods of a job by name.
type PodUids = BTreeMap<String, Option<String>>;

/// Returns the UIDs of the pods of `low`, which are those of its plan.
async fn pod_uids(space: &Space, status: &DIJobStatus) -> PodUids {
    let pods = space.pods_of("low").await.into_iter();
    let uids: PodUids = pods.map(|(name, pod)| (name, pod.metadata.uid)).collect();
    let mut planned = plan_names(status);
    planned.insert("low-coordinator");
    assert!(uids.keys().eq(planned), "{uids:?}");
    uids
}

/// Checks that each pod of `low` was created once for each of its two admissions, and each one of
/// `urgent` once. The audit log does not show a create whose manager was killed before the
/// response.
async fn check_created_pods(space: &Space, first: &PodUids, second: &PodUids) {
    let mut created = pod_create_counts(space).await;
    for (name, uid) in first {
        assert_ne!(&second[name], uid, "{name} is the same pod");
        let times = created.remove(name).unwrap_or(0);
        assert!(times <= 2, "{name} was created {times} times");
    }
    let is_of_urgent = |name: &String| name.starts_with("urgent-");
    assert!(created.keys().all(is_of_urgent), "{created:?}");
    assert!(created.values().all(|times| *times == 1), "{created:?}");
}

/// Kueue's controllers, each of which is killed at its second write.
struct ShortLives {
    space: Space,
    kueue: Kueue,
    /// The proxy of the last controller.
    proxy: HangingProxy,
    kills: usize,
}

impl ShortLives {
    fn start(space: &Space, mut kueue: Kueue) -> Self {
        Self {
            proxy: start_hanging_controller(space, &mut kueue),
            space: space.clone(),
            kueue,
            kills: 0,
        }
    }

    /// Kills each controller at its second write and starts the next one, until a job runs with
    /// these ready collectors. Returns its status.
    async fn until_running(&mut self, job: &str, collectors: &str) -> DIJobStatus {
        eventually(&format!("{job} runs with {collectors}"), async || {
            if self.proxy.is_hanging() {
                self.proxy = start_hanging_controller(&self.space, &mut self.kueue);
                self.kills += 1;
            }
            let found = self.space.jobs().get(job).await;
            let status = found.map_err(|error| error.to_string())?.status;
            let status = status.unwrap_or_default();
            if runs_with(&status, collectors) {
                Ok(status)
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await
    }
}

/// Replaces the controller by one that hangs at its second write.
fn start_hanging_controller(space: &Space, kueue: &mut Kueue) -> HangingProxy {
    let proxy = HangingProxy::start(space.server.client("kueue"), |request| request.write > 0);
    kueue.restart_controller_with(proxy.client());
    proxy
}

#[tokio::test]
async fn controllers_killed_after_each_write_keep_quota_and_names() {
    let space = Space::new().await;
    let space = space.without_random_faults("it counts the creates of each pod");
    let kueue = Kueue::start(&space, 4).await;
    let class = kueue.create_priority_class("urgent", 1000).await;
    let mut lives = ShortLives::start(&space, kueue);
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let low = space.create(&queued_job("low", 2)).await;
    lives.until_running("low", "2/2").await;
    let before = space.until_settled("low").await;

    let urgent = queued_job_with_priority("urgent", 1, &class);
    space.create(&urgent).await;
    lives.until_running("urgent", "1/1").await;
    wait_until_queued(&space, "low", "QueuePreempted").await;
    exit(&space.pods(), "urgent-coordinator", 0).await;
    lives.until_running("low", "2/2").await;
    let after = space.until_settled("low").await;
    assert_eq!(plan_names(&after), plan_names(&before));
    space.until_phase("urgent", Phase::Succeeded).await;

    let declared: Vec<_> = plan_names(&after).into_iter().map(str::to_owned).collect();
    endpoint.until_listed("low", &declared).await;
    let added = endpoint.add("low", 1, None).await.pods();
    let [requested]: [String; 1] = added.try_into().unwrap();
    let status = lives.until_running("low", "3/3").await;
    let entry = find_entry(&status, &requested).unwrap();
    assert_eq!(entry.queue, Some(QueueState::Admitted));

    exit(&space.pods(), "low-coordinator", 0).await;
    let status = space.until_phase("low", Phase::Succeeded).await;
    assert_eq!(status.restarts, 0);
    wait_until_finished(&lives.kueue, &base_workload(&low)).await;
    manager.stop().await;
    lives.kueue.check().await;
    // Four admissions and a preemption are the least, each written by another controller.
    assert!(lives.kills >= 4, "{} kills", lives.kills);
    check_pods_created_once(&space, &declared).await;
}

/// Checks that each pod of `low` with quota of the whole job was created once for each of its two
/// admissions, and the requested pod and those of `urgent` once.
async fn check_pods_created_once(space: &Space, declared: &[String]) {
    let mut created = pod_create_counts(space).await;
    let low = declared.iter().map(String::as_str);
    for name in low.chain(["low-coordinator"]) {
        assert_eq!(created.remove(name), Some(2), "{name}");
    }
    assert_eq!(created.len(), 3, "{created:?}");
    assert!(created.values().all(|times| *times == 1), "{created:?}");
}
