//! The manager is killed after each of its writes, and the scheduler between two bindings.

use std::collections::BTreeSet;

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Gangs, Kubelet, Space, eventually, exit, gang_job, gang_settings};
use serde_json::json;

use super::{check_order, has_gang, until_no_group};
use crate::{
    hanging_proxy::{HangingProxy, run_short_lives},
    queueing::{plan_names, runs_with},
    suspend::set_suspended,
    two_managers::pod_create_counts,
};

/// Waits until all pods run, checks the gang with this number of collectors in the writes from this
/// one on, and returns the names of the replicas.
async fn check_gang(
    space: &Space,
    gangs: &Gangs,
    collectors: i32,
    first_write: usize,
) -> BTreeSet<String> {
    let status = space.until_settled("job").await;
    let is_placed = has_gang(&status, collectors + 1, true);
    assert!(is_placed, "{:?}", status.scheduling);
    assert_eq!(status.restarts, 0);
    assert_eq!(gangs.groups_of("job").await.len(), 1);
    let floor = status.plan.iter().filter(|entry| entry.index < collectors);
    let mut floor: BTreeSet<String> = floor.map(|entry| entry.name.clone()).collect();
    floor.insert("job-coordinator".to_owned());
    check_order(&space.writes().await[first_write..], &floor);
    plan_names(&status).into_iter().map(str::to_owned).collect()
}

/// Starts the job by short-lived managers, checks its gang in the writes from this one on, and
/// returns the names of its replicas.
async fn start_job(space: &Space, gangs: &Gangs, first_write: usize) -> BTreeSet<String> {
    let is_running = |status: &DIJobStatus| runs_with(status, "2/2");
    run_short_lives(space, &gang_settings(), "job", is_running).await;
    let manager = gangs.manager("manager");
    let names = check_gang(space, gangs, 1, first_write).await;
    manager.stop().await;
    names
}

/// Lets short-lived managers react, and then another one, until the job has this phase and no group.
async fn stop_job(space: &Space, gangs: &Gangs, phase: Phase) {
    let is_stopped = |status: &DIJobStatus| status.phase == Some(phase);
    run_short_lives(space, &gang_settings(), "job", is_stopped).await;
    let manager = gangs.manager("manager");
    space.until_phase("job", phase).await;
    until_no_group(gangs, "job").await;
    manager.stop().await;
}

#[tokio::test]
async fn managers_killed_after_each_write_keep_the_gang() {
    let space = Space::new().await;
    let space = space.without_random_faults("it counts the writes of each manager");
    let gangs = Gangs::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let job = gang_job(&space, "job", 2);
    let job = job.spec(json!({"scheduling": {"gang": {"minCollectors": 1}}}));
    space.create(&job).await;
    let before = start_job(&space, &gangs, 0).await;
    set_suspended(&space, "job", true).await;
    stop_job(&space, &gangs, Phase::Suspended).await;
    let writes = space.writes().await.len();
    set_suspended(&space, "job", false).await;
    assert_eq!(start_job(&space, &gangs, writes).await, before);
    exit(&space.pods(), "job-coordinator", 0).await;
    stop_job(&space, &gangs, Phase::Succeeded).await;
    // Once before the suspension, and once after it.
    let created = pod_create_counts(&space).await;
    assert!(created.values().all(|times| *times <= 2), "{created:?}");
    assert_eq!(created.len(), 3, "{created:?}");
}

/// Replaces the scheduler by one that hangs at its second binding.
fn start_hanging_scheduler(space: &Space, gangs: &mut Gangs) -> HangingProxy {
    let proxy = HangingProxy::start(space.server.client("scheduler"), |request| {
        request.write > 0 && request.path().ends_with("/binding")
    });
    gangs.restart_scheduler_with(proxy.client());
    proxy
}

/// Waits until the scheduler has bound one of three pods of the gang and hangs, kills it, and lets
/// another one complete the gang. Returns the names of the replicas.
async fn complete_gang(
    space: &Space,
    gangs: &mut Gangs,
    proxy: HangingProxy,
    first_write: usize,
) -> BTreeSet<String> {
    eventually("the scheduler hangs between two bindings", async || {
        let is_hanging = proxy.is_hanging();
        is_hanging.then_some(()).ok_or_else(String::new)
    })
    .await;
    let is_half_bound = |status: &DIJobStatus| {
        let mut messages = status.conditions.iter().map(|found| &found.message);
        has_gang(status, 3, false)
            && messages.any(|message| message.starts_with("gang: 1 of 3 placed"))
    };
    space
        .until("job", "half of its gang is placed", is_half_bound)
        .await;
    let pods = space.pods_of("job").await;
    assert_eq!(pods.len(), 3, "no overflow: {:?}", pods.keys());
    gangs.restart_scheduler();
    drop(proxy);
    check_gang(space, gangs, 2, first_write).await
}

#[tokio::test]
async fn scheduler_killed_between_bindings_completes_the_gang() {
    let space = Space::new().await;
    let space = space.without_random_faults("it counts the creates of each pod");
    let mut gangs = Gangs::start(&space, 4).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    let job = gang_job(&space, "job", 3);
    let job = job.spec(json!({"scheduling": {"gang": {"minCollectors": 2}}}));
    let proxy = start_hanging_scheduler(&space, &mut gangs);
    space.create(&job).await;
    let before = complete_gang(&space, &mut gangs, proxy, 0).await;
    let created = pod_create_counts(&space).await;
    assert_eq!(created.len(), 4, "{created:?}");
    assert!(created.values().all(|times| *times == 1), "{created:?}");

    set_suspended(&space, "job", true).await;
    space.until_phase("job", Phase::Suspended).await;
    until_no_group(&gangs, "job").await;
    let writes = space.writes().await.len();
    let proxy = start_hanging_scheduler(&space, &mut gangs);
    set_suspended(&space, "job", false).await;
    let after = complete_gang(&space, &mut gangs, proxy, writes).await;
    assert_eq!(after, before);

    exit(&space.pods(), "job-coordinator", 0).await;
    space.until_phase("job", Phase::Succeeded).await;
    until_no_group(&gangs, "job").await;
    manager.stop().await;
    let created = pod_create_counts(&space).await;
    assert_eq!(created.len(), 4, "{created:?}");
    assert!(created.values().all(|times| *times == 2), "{created:?}");
}
