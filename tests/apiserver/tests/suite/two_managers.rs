//! Restarted and concurrent managers: fixed names make their writes idempotent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, Space, eventually, exit};
use di_controller::{Metrics, Result, Settings, run_with_leader_election};
use prometheus_client::registry::Registry;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::leader_election::{new_lease, version_and_holder};

/// Returns how often each pod was created.
pub(crate) async fn pod_create_counts(space: &Space) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for write in space.writes().await {
        if write.is_call("create", "pods") && write.code == 201 {
            *made.entry(write.name).or_default() += 1;
        }
    }
    made
}

async fn check_pods_created_once(space: &Space, job: &str, collectors: usize) {
    let mut planned: Vec<_> = space
        .until_settled(job)
        .await
        .plan
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(planned.len(), collectors);
    planned.push(format!("{job}-coordinator"));
    planned.sort();
    let made = pod_create_counts(space).await;
    assert!(
        made.keys().eq(&planned),
        "made {:?}, planned {planned:?}",
        made.keys()
    );
    assert!(made.values().all(|times| *times == 1), "{made:?}");
}

#[tokio::test]
async fn f36_two_managers_create_no_extra_pod() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let managers = ["one", "two"].map(|agent| space.manager(agent));
    space.create(&Job::new("contested", 20)).await;
    check_pods_created_once(&space, "contested", 20).await;
    exit(&space.pods(), "contested-coordinator", 0).await;
    space.until_phase("contested", Phase::Succeeded).await;
    eventually("only the coordinator is left", async || {
        let left =
            space.pods_of("contested").await.len() + space.services_of("contested").await.len();
        if left == 1 {
            Ok(())
        } else {
            Err(left.to_string())
        }
    })
    .await;
    for manager in managers {
        manager.stop().await;
    }
}

/// A manager with leader election: its name, its stop signal and its task.
type LeasedManager = (&'static str, oneshot::Sender<()>, JoinHandle<Result<()>>);

fn start_with_lease(space: &Space, agent: &'static str) -> LeasedManager {
    let (stop, stopped) = oneshot::channel::<()>();
    // Long enough that a slow machine does not lose the lease.
    let lease = new_lease(space, agent, Duration::from_secs(30));
    let client = space.server.client_of_manager(agent, &space.namespace);
    let task = tokio::spawn(async move {
        let metrics = Metrics::new(&mut Registry::default());
        let shutdown = async {
            stopped.await.ok();
        };
        run_with_leader_election(client, &lease, Settings::default(), metrics, shutdown).await
    });
    (agent, stop, task)
}

/// Returns the managers that wrote objects of a job.
async fn writers(space: &Space, job: &str) -> BTreeSet<String> {
    let mut writes = space.writes().await;
    writes.retain(|write| ["one", "two"].contains(&&*write.agent) && write.concerns_job(job));
    writes.into_iter().map(|write| write.agent).collect()
}

#[tokio::test]
async fn f36_managers_with_lease_write_one_at_a_time() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let managers = ["one", "two"].map(|agent| start_with_lease(&space, agent));
    space.create(&Job::new("first", 5)).await;
    check_pods_created_once(&space, "first", 5).await;
    let leader = version_and_holder(&space).await.unwrap().1.unwrap();
    let alone = BTreeSet::from([leader.clone()]);
    assert_eq!(writers(&space, "first").await, alone);

    let (leading, waiting): (Vec<_>, Vec<_>) = managers
        .into_iter()
        .partition(|(agent, ..)| *agent == leader);
    let end = async |managers: Vec<LeasedManager>| {
        for (_, stop, task) in managers {
            stop.send(()).unwrap();
            task.await.unwrap().unwrap();
        }
    };
    end(leading).await;
    space.create(&Job::new("next", 2)).await;
    space.until_settled("next").await;
    let next = writers(&space, "next").await;
    assert_eq!((next.len(), next.contains(&leader)), (1, false), "{next:?}");
    assert_eq!(
        version_and_holder(&space).await.unwrap().1,
        next.first().cloned()
    );
    end(waiting).await;
}

#[tokio::test]
async fn manager_stopped_before_cache_sync_exits_at_once() {
    let space = Space::new().await;
    let manager = space.manager("manager");
    let stopped = tokio::time::timeout(Duration::from_secs(60), manager.stop()).await;
    assert!(stopped.is_ok(), "it hangs");
}
