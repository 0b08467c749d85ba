//! The generation of the listed replicas, and long polls. See docs/decisions/0039.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use di_api::DIJobStatus;
use di_apiserver_tests::{Answer, Caller, Endpoint, Job, Kubelet, Space, eventually, run};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

/// The lists that a client of an endpoint got: generation and pods.
type Seen = Arc<Mutex<Vec<(i64, Vec<String>)>>>;

/// Polls the list of the job.
async fn poll(caller: &Caller, generation: i64, wait: &str) -> Answer {
    let query = format!("coordinator=job-coordinator&generation={generation}&wait={wait}");
    caller.get(&query).await
}

/// Follows the list of the job as a trainer does.
async fn follow(caller: Caller, seen: Seen) {
    let mut known = 0;
    loop {
        let answer = poll(&caller, known, "5s").await;
        let generation = answer.body["data"]["generation"].as_i64();
        if let Some(generation) = generation.filter(|generation| *generation != known) {
            known = generation;
            seen.lock().unwrap().push((generation, answer.pods()));
        }
    }
}

/// Waits until this client sees exactly these pods.
async fn until_seen(seen: &Seen, pods: &[String]) {
    let mut pods = pods.to_vec();
    pods.sort();
    eventually("a poll shows the pods", async || {
        let last = seen.lock().unwrap().last().cloned();
        match last {
            Some((_, found)) if found == pods => Ok(()),
            last => Err(format!("{last:?}, not {pods:?}")),
        }
    })
    .await;
}

/// Waits until the endpoint has this generation of the list.
async fn until_counted(endpoint: &Endpoint, generation: i64) {
    eventually("the endpoint has the generation", async || {
        let answer = endpoint.list("job").await;
        if answer.body["data"]["generation"] == generation {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn generations_grow_and_are_equal_in_all_endpoints() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let one = Endpoint::start(&space, "one").await;
    let two = Endpoint::start(&space, "two").await;
    space.create(&Job::new("job", 2).learners(0)).await;
    let status = space.until_settled("job").await;
    let mut pods: Vec<_> = status.plan.into_iter().map(|entry| entry.name).collect();
    let mut clients = JoinSet::new();
    let seen = [&one, &two].map(|endpoint| {
        let seen = Seen::default();
        let caller: &Caller = endpoint;
        clients.spawn(follow(caller.clone(), seen.clone()));
        seen
    });
    let until_all_see = async |pods: &[String]| {
        for seen in &seen {
            until_seen(seen, pods).await;
        }
    };
    until_all_see(&pods).await;

    pods.extend(one.add("job", 2, None).await.pods());
    until_all_see(&pods).await;
    let removed = two.remove("job", 1).await.pods();
    pods.retain(|name| !removed.contains(name));
    until_all_see(&pods).await;
    let fresh = one.report_failed("job", &pods[0]).await.pods();
    pods.remove(0);
    pods.extend(fresh);
    until_all_see(&pods).await;

    // The count survives the manager.
    manager.stop().await;
    let manager = space.manager("next-manager");
    pods.extend(two.add("job", 1, None).await.pods());
    until_all_see(&pods).await;
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    let params = PatchParams::default();
    space.jobs().patch("job", &params, &suspend).await.unwrap();
    until_all_see(&[]).await;

    let mut sets: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for seen in &seen {
        let seen = seen.lock().unwrap().clone();
        assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "{seen:?}");
        for (generation, pods) in seen {
            let known = sets.entry(generation).or_insert_with(|| pods.clone());
            assert_eq!(*known, pods, "generation {generation}");
        }
    }
    manager.stop().await;
}

#[tokio::test]
async fn replica_with_list_when_ready_is_listed_once_ready() {
    let space = Space::new().await;
    let _kubelet = Kubelet::reaping(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let job = Job::new("job", 2).learners(0);
    let job = job.with(|spec| spec["collector"]["listWhen"] = "Ready".into());
    space.create(&job).await;
    let are_made = |status: &DIJobStatus| {
        status.plan.len() == 2 && status.plan.iter().all(|entry| entry.uid.is_some())
    };
    let plan = space.until("job", "its pods are made", are_made).await.plan;
    until_counted(&endpoint, 0).await;
    let ready = plan[0].name.clone();
    let pods = space.pods();
    let (answer, ()) = tokio::join!(poll(&endpoint, 0, "30s"), run(&pods, &ready));
    assert_eq!(answer.pods(), [ready.as_str()]);
    assert_eq!(answer.body["data"]["generation"], 1);
    endpoint.until_listed("job", &[ready]).await;
    manager.stop().await;
}

#[tokio::test]
async fn poll_of_deleted_job_ends_with_404() {
    let space = Space::new().await;
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&Job::new("job", 0)).await;
    let counted = Patch::Merge(json!({"status": {"membershipGeneration": 3}}));
    let params = PatchParams::default();
    let jobs = space.jobs();
    jobs.patch_status("job", &params, &counted).await.unwrap();
    until_counted(&endpoint, 3).await;
    let deletion = async { jobs.delete("job", &DeleteParams::default()).await.unwrap() };
    let (answer, _) = tokio::join!(poll(&endpoint, 3, "30s"), deletion);
    assert_eq!(answer.status, 404, "{answer:?}");
}
