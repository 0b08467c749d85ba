//! The manager is killed after each of its writes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{
    Gangs, Kubelet, Manager, Proxy, ProxyAction, Space, eventually, exit, gang_job, gang_settings,
};
use serde_json::json;

use super::{check_order, has_gang, until_no_group};
use crate::{queueing::plan_names, suspend::set_suspended, two_managers::pod_create_counts};

/// Limit of the managers for one change.
const MAX_LIVES: usize = 60;

/// Runs managers one after the other, each of which is killed at its second write, until the status
/// satisfies `is_done`. Events do not count.
async fn run_short_lives(space: &Space, job: &str, is_done: impl Fn(&DIJobStatus) -> bool) {
    for _ in 0..MAX_LIVES {
        let proxy = Proxy::start(space.server.client_of_manager("manager", &space.namespace));
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = writes.clone();
        proxy.set_rule(move |request| {
            let is_counted = request.write > 0 && !request.path().contains("/events");
            if is_counted && counted.fetch_add(1, Relaxed) > 0 {
                ProxyAction::Hung
            } else {
                ProxyAction::Served
            }
        });
        let manager = Manager::start_with(proxy.client(), gang_settings());
        let is_end = eventually("a second write, or the end", async || {
            let found = space.jobs().get(job).await;
            let status = found.map_err(|error| error.to_string())?.status;
            if status.as_ref().is_some_and(&is_done) {
                Ok(true)
            } else if writes.load(Relaxed) > 1 {
                Ok(false)
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await;
        manager.kill().await;
        if is_end {
            return;
        }
    }
}

/// Starts the job by short-lived managers, checks its gang in the writes from this one on, and
/// returns the names of its replicas.
async fn start_job(space: &Space, gangs: &Gangs, first_write: usize) -> BTreeSet<String> {
    let is_running = |status: &DIJobStatus| {
        status.phase == Some(Phase::Running) && status.collectors_ready.as_deref() == Some("2/2")
    };
    run_short_lives(space, "job", is_running).await;
    let manager = gangs.manager("manager");
    let status = space.until_settled("job").await;
    manager.stop().await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    assert_eq!(status.restarts, 0);
    assert_eq!(gangs.groups_of("job").await.len(), 1);
    let first = status.plan.iter().find(|entry| entry.index == 0).unwrap();
    let floor = BTreeSet::from([first.name.clone(), "job-coordinator".to_owned()]);
    check_order(&space.writes().await[first_write..], &floor);
    plan_names(&status).into_iter().map(str::to_owned).collect()
}

/// Lets short-lived managers react, and then another one, until the job has this phase and no group.
async fn stop_job(space: &Space, gangs: &Gangs, phase: Phase) {
    let is_stopped = |status: &DIJobStatus| status.phase == Some(phase);
    run_short_lives(space, "job", is_stopped).await;
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
