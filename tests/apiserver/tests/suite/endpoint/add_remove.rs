//! Adding and removing replicas through the endpoint, with a manager.

use std::time::Duration;

use di_api::{DIJobStatus, Origin, Phase};
use di_apiserver_tests::{
    Caller, Endpoint, GPUS, Job, Kubelet, Manager, Space, common_nodes, create_aggregator_config,
    eventually, exit, forbid_pods, forbid_resource, set_pod_quota, template, wait_for_objects,
};
use di_replicas::Settings;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use reqwest::Method;
use serde_json::json;

struct World {
    space: Space,
    endpoint: Endpoint,
    manager: Manager,
    _kubelet: Kubelet,
}

async fn start_world(job: &Job) -> World {
    start_world_in(Space::new().await, job).await
}

/// Random faults would delay the rejection that this waits for.
async fn start_world_without_random_faults(job: &Job) -> World {
    let space = Space::new().await;
    start_world_in(
        space.without_random_faults("an add waits only a limited time for rejections"),
        job,
    )
    .await
}

async fn start_world_in(space: Space, job: &Job) -> World {
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
async fn wait_for_replicas(world: &World, replicas: &[String]) {
    let mut all = replicas.to_vec();
    all.push("job-coordinator".to_owned());
    wait_for_objects("pods", &all, async || world.space.pods_of("job").await).await;
    wait_for_objects("services", &all, async || {
        world.space.services_of("job").await
    })
    .await;
    world.endpoint.until_listed("job", replicas).await;
}

#[tokio::test]
async fn add_and_remove_change_exactly_the_returned_pods() {
    let world = start_world(&Job::new("job", 0)).await;
    let first = world.endpoint.add("job", 2, None).await.pods();
    assert_eq!(first.len(), 2);
    wait_for_replicas(&world, &first).await;
    let second = world.endpoint.add("job", 1, None).await.pods();
    wait_for_replicas(&world, &[first.clone(), second.clone()].concat()).await;
    // Replicas that are not ready are removed before the newest.
    world.space.until_settled("job").await;
    let gone = world.endpoint.remove("job", 1).await.pods();
    assert_eq!(gone, second, "the newest goes first");
    wait_for_replicas(&world, &first).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn repeated_request_with_key_returns_same_answer() {
    let world = start_world(&Job::new("job", 0)).await;
    let first = world.endpoint.add("job", 3, Some("once")).await.pods();
    let again = world.endpoint.add("job", 3, Some("once")).await.pods();
    assert_eq!(first, again);
    let refused = world.endpoint.add("job", 4, Some("once")).await;
    assert_eq!(refused.status, 409, "another request: {refused:?}");
    let other = world.endpoint.add("job", 1, Some("twice")).await.pods();
    wait_for_replicas(&world, &[first, other].concat()).await;
    world.manager.stop().await;
}

/// Starts an endpoint that waits longer for pods than the manager needs to be rejected.
async fn start_patient_endpoint(space: &Space) -> Endpoint {
    let settings = Settings {
        scheduling_wait: Duration::from_secs(15),
        allow_anonymous: true,
        ..Settings::default()
    };
    Endpoint::start_with(space, "endpoint", settings).await
}

#[tokio::test]
async fn add_over_quota_is_rolled_back_and_can_be_retried() {
    let mut world = start_world_without_random_faults(&Job::new("job", 0)).await;
    world.endpoint = start_patient_endpoint(&world.space).await;
    let first = world.endpoint.add("job", 1, None).await.pods();
    let quota = forbid_pods(&world.space).await;
    let refused = world.endpoint.add("job", 3, Some("once")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota"), "{message}");
    wait_for_replicas(&world, &first).await;

    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    // The API server notices the deleted quota with a delay.
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
    wait_for_replicas(&world, &[first, added].concat()).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn interrupted_add_over_quota_is_not_reported_complete() {
    let mut world = start_world_without_random_faults(&Job::new("job", 0)).await;
    let dying = start_patient_endpoint(&world.space).await;
    let quota = forbid_pods(&world.space).await;
    set_pod_quota(&quota, 3, 0).await;
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

    world.endpoint = start_patient_endpoint(&world.space).await;
    let refused = world.endpoint.add("job", 5, Some("once")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    wait_for_replicas(&world, &[]).await;
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
    wait_for_replicas(&world, &added).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn learner_group_over_quota_is_rolled_back() {
    let mut world = start_world_without_random_faults(&Job::new("job", 0).learners(0)).await;
    world.endpoint = start_patient_endpoint(&world.space).await;
    common_nodes(&world.space).await;
    create_aggregator_config(&world.space).await;
    let mut greedy = template();
    greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    // The quota limits GPUs only, so that the aggregator fits.
    forbid_resource(&world.space, GPUS, greedy).await;
    let refused = world.endpoint.add_learners("job", 1, 6).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("exceeded quota"), "{message}");
    let nothing = |status: &DIJobStatus| status.plan.is_empty();
    world
        .space
        .until("job", "no replica remains", nothing)
        .await;
    wait_for_replicas(&world, &[]).await;
    world.manager.stop().await;
}

#[tokio::test]
async fn removing_declared_replicas_lowers_declared_count() {
    let world = start_world(&Job::new("job", 3)).await;
    let plan = world.space.until_settled("job").await.plan;
    let declared: Vec<_> = plan.into_iter().map(|entry| entry.name).collect();
    let requested = world.endpoint.add("job", 2, None).await.pods();
    wait_for_replicas(&world, &[declared.clone(), requested.clone()].concat()).await;

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
    wait_for_replicas(&world, &left).await;
    let job = world.space.jobs().get("job").await.unwrap();
    assert_eq!(job.spec.collector.unwrap().replicas, 1);
    assert_eq!(job.status.unwrap().plan[0].origin, Origin::Declared);
    world.manager.stop().await;
}

#[tokio::test]
async fn f21_failed_replica_is_replaced_with_same_index() {
    let world = start_world(&Job::new("job", 0)).await;
    let first = world.endpoint.add("job", 2, None).await.pods();
    wait_for_replicas(&world, &first).await;
    let swapped = world.endpoint.report_failed("job", &first[0]).await.pods();
    assert_eq!(swapped.len(), 1);
    assert!(!first.contains(&swapped[0]));
    wait_for_replicas(&world, &[first[1].clone(), swapped[0].clone()]).await;
    world.space.until_event("job", "ReplicaReplaced").await;
    let again = world.endpoint.report_failed("job", &first[0]).await.pods();
    assert_eq!(
        again, swapped,
        "a report of a name replaced before leads to its replacement"
    );
    wait_for_replicas(&world, &[first[1].clone(), swapped[0].clone()]).await;
    for not_ours in ["job-coordinator", "elsewhere-collector-abcde"] {
        let answer = world.endpoint.report_failed("job", not_ours).await.pods();
        assert!(answer.is_empty(), "{not_ours}: {answer:?}");
    }
    wait_for_replicas(&world, &[first[1].clone(), swapped[0].clone()]).await;

    // If the replacement cannot be created, its plan entry stays.
    let quota = forbid_pods(&world.space).await;
    let late = world.endpoint.report_failed("job", &first[1]).await.pods();
    assert_eq!(late.len(), 1);
    let pods = ["job-coordinator".to_owned(), swapped[0].clone()];
    wait_for_objects("pods", &pods, async || world.space.pods_of("job").await).await;
    world.space.until_event("job", "QuotaExceeded").await;
    let again = world.endpoint.report_failed("job", &first[1]).await.pods();
    assert_eq!(again, late);
    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    wait_for_replicas(&world, &[swapped[0].clone(), late[0].clone()]).await;
    world.manager.stop().await;
}

/// Returns the contents of a pod without its name and node.
fn pod_contents(pod: &Pod) -> String {
    let mut spec = serde_json::to_value(&pod.spec).unwrap();
    spec.as_object_mut().unwrap().remove("nodeName");
    let made = json!({
        "labels": pod.metadata.labels, "annotations": pod.metadata.annotations,
        "ownerReferences": pod.metadata.owner_references, "spec": spec,
    });
    made.to_string().replace(&pod.name_any(), "itself")
}

#[tokio::test]
async fn f38_replacement_has_no_changes_of_failed_pod() {
    let job = Job::new("job", 0).with(|spec| {
        spec["collector"]["template"]["metadata"] =
            json!({"annotations": {"theirs": "kept"}, "labels": {"team": "rl"}});
    });
    let world = start_world(&job).await;
    let body = json!({"collectors": {"replicas": 1, "cpus": 1, "memory": "64Mi"}});
    let request = world
        .endpoint
        .change_request(Method::POST, "", "job", None, body);
    let first = Caller::send(request).await.unwrap().pods().remove(0);
    world.space.until_settled("job").await;
    let pods = world.space.pods();
    let before = pod_contents(&pods.get(&first).await.unwrap());
    assert!(
        before.contains("64Mi") && before.contains("theirs"),
        "{before}"
    );
    let change = json!({
        "metadata": {"annotations": {"added": "later"}, "labels": {"added": "later"}},
        "spec": {"containers": [{"name": "di-container", "image": "another"}]},
    });
    let params = PatchParams::default();
    let patch = Patch::Strategic(change);
    pods.patch(&first, &params, &patch).await.unwrap();

    let fresh = world
        .endpoint
        .report_failed("job", &first)
        .await
        .pods()
        .remove(0);
    let next = eventually("the replacement exists", async || {
        pods.get(&fresh).await.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(pod_contents(&next), before);
    world.manager.stop().await;
}

#[tokio::test]
async fn ended_suspended_or_deleted_job_rejects_changes() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let suspended = Job::new("suspended", 0).with(|spec| spec["suspend"] = true.into());
    for job in [
        Job::new("over", 0),
        Job::new("going", 0).finalizer(),
        suspended,
    ] {
        space.create(&job).await;
    }
    space.until_settled("over").await;
    exit(&space.pods(), "over-coordinator", 0).await;
    space.until_phase("over", Phase::Succeeded).await;
    space.until_settled("going").await;
    let now = DeleteParams::default();
    space.jobs().delete("going", &now).await.unwrap();
    for (job, why) in [
        ("over", "has ended"),
        ("suspended", "is suspended"),
        ("going", "is being deleted"),
    ] {
        for method in ["POST", "DELETE", "failed"] {
            let answer = eventually("the endpoint knows the state of the job", async || {
                let answer = match method {
                    "POST" => endpoint.add(job, 1, None).await,
                    "DELETE" => endpoint.remove(job, 1).await,
                    _ => {
                        endpoint
                            .report_failed(job, &format!("{job}-collector-x"))
                            .await
                    }
                };
                match answer.status {
                    503 => Err(format!("{answer:?}")),
                    _ => Ok(answer),
                }
            })
            .await;
            let response = (answer.status, answer.body["message"].as_str());
            assert_eq!(response, (409, Some(&*format!("DIJob {job} {why}"))));
        }
        assert!(endpoint.list(job).await.pods().is_empty());
        let status = space.jobs().get(job).await.unwrap().status;
        assert!(status.is_none_or(|status| status.plan.is_empty()));
    }
    manager.stop().await;
}
