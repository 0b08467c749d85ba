//! The replica endpoint and the manager together.

use std::time::Duration;

use di_api::{DIJobStatus, Origin};
use di_apiserver_tests::{
    Endpoint, GPUS, Job, Kubelet, Manager, Space, common_nodes, configure, eventually, exists,
    forbid, forbid_pods, tell_quota, template,
};
use di_replicas::Settings;
use kube::api::DeleteParams;
use serde_json::json;

struct World {
    space: Space,
    endpoint: Endpoint,
    manager: Manager,
    _kubelet: Kubelet,
}

async fn world(job: &Job) -> World {
    let space = Space::new().await;
    let kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(job).await;
    space.until_settled("job").await;
    World {
        space,
        endpoint,
        manager,
        _kubelet: kubelet,
    }
}

/// Waits until the job has exactly these replicas.
async fn has(world: &World, replicas: &[String]) {
    let mut all = replicas.to_vec();
    all.push("job-coordinator".to_owned());
    exists("pods", &all, async || world.space.pods_of("job").await).await;
    exists("services", &all, async || {
        world.space.services_of("job").await
    })
    .await;
    world.endpoint.until_listed("job", replicas).await;
}

#[tokio::test]
async fn the_pods_that_come_are_exactly_those_answered_and_those_that_go_too() {
    let world = world(&Job::new("job", 0)).await;
    let first = world.endpoint.add("job", 2, None).await.pods();
    assert_eq!(first.len(), 2);
    has(&world, &first).await;
    let second = world.endpoint.add("job", 1, None).await.pods();
    has(&world, &[first.clone(), second.clone()].concat()).await;
    // Who is not ready goes before the newest.
    world.space.until_settled("job").await;
    let gone = world.endpoint.remove("job", 1).await.pods();
    assert_eq!(gone, second, "the newest goes first");
    has(&world, &first).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn a_request_sent_again_with_its_key_is_answered_as_before() {
    let world = world(&Job::new("job", 0)).await;
    let first = world.endpoint.add("job", 3, Some("once")).await.pods();
    let again = world.endpoint.add("job", 3, Some("once")).await.pods();
    assert_eq!(first, again);
    let other = world.endpoint.add("job", 1, Some("twice")).await.pods();
    has(&world, &[first, other].concat()).await;
    world.manager.stop().await;
}

/// An endpoint that waits longer than the manager takes to be refused.
async fn patient(space: &Space) -> Endpoint {
    let settings = Settings {
        create_wait: Duration::from_secs(15),
        allow_anonymous: true,
        ..Settings::default()
    };
    Endpoint::start_with(space, "endpoint", settings).await
}

#[tokio::test]
async fn what_the_quota_has_no_room_for_is_taken_back_and_may_be_asked_for_again() {
    let mut world = world(&Job::new("job", 0)).await;
    world.endpoint = patient(&world.space).await;
    let first = world.endpoint.add("job", 1, None).await.pods();
    let quota = forbid_pods(&world.space).await;
    let refused = world.endpoint.add("job", 3, Some("once")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota"), "{message}");
    has(&world, &first).await;

    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    // The API server takes a moment to hear of that.
    let added = eventually("there is room again", async || {
        let answer = world.endpoint.add("job", 3, Some("once")).await;
        if answer.status == 200 {
            Ok(answer.pods())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
    assert_eq!(added.len(), 3);
    has(&world, &[first, added].concat()).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn what_a_try_that_was_broken_off_got_is_not_taken_for_all_that_was_asked_for() {
    let mut world = world(&Job::new("job", 0)).await;
    let dying = patient(&world.space).await;
    let quota = forbid_pods(&world.space).await;
    tell_quota(&quota, 3, 0).await;
    let three_come = eventually("the quota is used up", async || {
        let pods = world.space.pods_of("job").await;
        if pods.len() == 4 {
            Ok(())
        } else {
            Err(format!("{:?}", pods.keys()))
        }
    });
    tokio::select! {
        () = three_come => {}
        answer = dying.add("job", 5, Some("once")) => panic!("{answer:?}"),
    }
    drop(dying);

    world.endpoint = patient(&world.space).await;
    let refused = world.endpoint.add("job", 5, Some("once")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    has(&world, &[]).await;
    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    let added = eventually("there is room again", async || {
        let answer = world.endpoint.add("job", 5, Some("once")).await;
        if answer.status == 200 {
            Ok(answer.pods())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
    assert_eq!(added.len(), 5);
    has(&world, &added).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn a_unit_whose_ddp_learners_the_quota_has_no_room_for_is_taken_back() {
    let mut world = world(&Job::new("job", 0).learners(0)).await;
    world.endpoint = patient(&world.space).await;
    common_nodes(&world.space).await;
    configure(&world.space).await;
    let mut greedy = template();
    greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    // Of GPUs alone, so that there is room for the aggregator.
    forbid(&world.space, GPUS, greedy).await;
    let refused = world.endpoint.add_learners("job", 1, 6).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota"), "{message}");
    let nothing = |status: &DIJobStatus| status.plan.is_empty();
    world.space.until("job", "nothing is left", nothing).await;
    has(&world, &[]).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn declared_replicas_that_are_given_back_are_declared_no_longer() {
    let world = world(&Job::new("job", 3)).await;
    let plan = world.space.until_settled("job").await.plan;
    let declared: Vec<_> = plan.into_iter().map(|entry| entry.name).collect();
    let requested = world.endpoint.add("job", 2, None).await.pods();
    has(&world, &[declared.clone(), requested.clone()].concat()).await;

    let gone = world.endpoint.remove("job", 4).await.pods();
    assert_eq!(gone.len(), 4);
    assert!(
        requested.iter().all(|name| gone.contains(name)),
        "the requested go first: {gone:?}"
    );
    let left: Vec<_> = declared
        .into_iter()
        .filter(|name| !gone.contains(name))
        .collect();
    has(&world, &left).await;
    let job = world.space.jobs().get("job").await.unwrap();
    assert_eq!(job.spec.collector.unwrap().replicas, 1);
    assert_eq!(job.status.unwrap().plan[0].origin, Origin::Declared);
    world.manager.stop().await;
}

#[tokio::test]
async fn f21_a_replica_reported_as_failed_is_swapped_for_another_with_its_number() {
    let world = world(&Job::new("job", 0)).await;
    let first = world.endpoint.add("job", 2, None).await.pods();
    has(&world, &first).await;
    let swapped = world.endpoint.failed("job", &first[0]).await.pods();
    assert_eq!(swapped.len(), 1);
    assert!(!first.contains(&swapped[0]));
    has(&world, &[first[1].clone(), swapped[0].clone()]).await;
    world.space.until_event("job", "ReplicaReplaced").await;
    let again = world.endpoint.failed("job", &first[0]).await.pods();
    assert_eq!(
        again, swapped,
        "a report of a name replaced before leads to its replacement"
    );
    has(&world, &[first[1].clone(), swapped[0].clone()]).await;
    for not_ours in ["job-coordinator", "elsewhere-collector-abcde"] {
        let answer = world.endpoint.failed("job", not_ours).await.pods();
        assert!(answer.is_empty(), "{not_ours}: {answer:?}");
    }
    has(&world, &[first[1].clone(), swapped[0].clone()]).await;

    // Where its pod cannot be made, the place is not lost.
    let quota = forbid_pods(&world.space).await;
    let late = world.endpoint.failed("job", &first[1]).await.pods();
    assert_eq!(late.len(), 1);
    let pods = ["job-coordinator".to_owned(), swapped[0].clone()];
    exists("pods", &pods, async || world.space.pods_of("job").await).await;
    world.space.until_event("job", "QuotaExceeded").await;
    let again = world.endpoint.failed("job", &first[1]).await.pods();
    assert_eq!(again, late);
    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    has(&world, &[swapped[0].clone(), late[0].clone()]).await;
    world.manager.stop().await;
}
