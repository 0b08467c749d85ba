//! Learners with several GPUs: an aggregator and its ddp learners.

use std::collections::{BTreeMap, BTreeSet};

use di_api::{DIJobStatus, PlanEntry, Role};
use di_apiserver_tests::{
    Caller, Endpoint, GpuNode, Job, Kubelet, Space, common_nodes, create_aggregator_config,
    eventually, exit, make_nodes, wait_for_objects,
};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use reqwest::Method;
use serde_json::{Value, json};

/// Creates a namespace with an AggregatorConfig, whose port is 5000.
async fn space_with_aggregator_config() -> Space {
    let space = Space::new().await;
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    space
}

/// Waits until the endpoint lists this number of processes of a learner group, and returns their
/// ports.
async fn ports_of(endpoint: &Endpoint, unit: &str, processes: usize) -> Vec<i32> {
    eventually("the endpoint knows the processes", async || {
        let answer = endpoint.get(&format!("aggregator={unit}")).await;
        let urls = answer.body["data"]["learners"].as_array();
        let ports = urls.into_iter().flatten().map(|url| {
            let (_, port) = url.as_str().unwrap().rsplit_once(':').unwrap();
            port.parse().unwrap()
        });
        let ports: Vec<_> = ports.collect();
        if ports.len() == processes {
            Ok(ports)
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await
}

fn gpu_limit(number: u32) -> Value {
    json!({"limits": {"nvidia.com/gpu": number.to_string()}})
}

fn desired_entries(status: &DIJobStatus, role: Role) -> Vec<PlanEntry> {
    let of_role = |e: &&PlanEntry| e.role == role && e.is_wanted();
    let mut all: Vec<_> = status.plan.iter().filter(of_role).cloned().collect();
    all.sort_by_key(|entry| entry.ddp.as_ref().map(|place| place.start_rank));
    all
}

fn env_value(pod: &Pod, name: &str) -> String {
    let env = pod.spec.as_ref().unwrap().containers[0]
        .env
        .as_ref()
        .unwrap();
    let mut of_name = env.iter().filter(|variable| variable.name == name);
    of_name
        .next()
        .and_then(|variable| variable.value.clone())
        .unwrap_or_default()
}

fn pod_ports(pod: &Pod) -> BTreeMap<String, i32> {
    let ports = pod.spec.as_ref().unwrap().containers[0]
        .ports
        .as_ref()
        .unwrap();
    ports
        .iter()
        .map(|port| (port.name.clone().unwrap(), port.container_port))
        .collect()
}

fn service_ports(service: &Service) -> BTreeMap<String, i32> {
    let ports = service.spec.as_ref().unwrap().ports.as_ref().unwrap();
    ports
        .iter()
        .map(|port| (port.name.clone().unwrap(), port.port))
        .collect()
}

#[tokio::test]
#[allow(clippy::too_many_lines)] // one pod after the other
async fn f25_learner_is_split_over_nodes_with_its_resources() {
    let space = space_with_aggregator_config().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let resources = json!({
        "requests": {"cpu": "5", "memory": "10Gi", "nvidia.com/gpu": "10"},
        "limits": {"cpu": "10", "memory": "20Gi", "nvidia.com/gpu": "10"},
    });
    let job = Job::new("split", 0)
        .learners_with(1, &resources)
        .with(|spec| {
            let main = &mut spec["learner"]["template"]["spec"]["containers"][0];
            main["ports"] = json!([{"name": "di-port", "containerPort": 7000}]);
            main["readinessProbe"] = json!({"tcpSocket": {"port": "di-port"}});
            spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
            spec["priorityClassName"] = json!("system-cluster-critical");
        });
    let job = space.create(&job).await;
    let status = space.until_settled("split").await;
    assert_eq!(status.learners_ready.as_deref(), Some("1/1"));
    let counts = |role: &str| status.replica_status[role].active;
    assert_eq!((counts("Aggregator"), counts("DDPLearner")), (1, 3));

    let unit = &desired_entries(&status, Role::Aggregator)[0];
    let members = desired_entries(&status, Role::DdpLearner);
    let pods = space.pods_of("split").await;
    let services = space.services_of("split").await;
    assert_eq!((pods.len(), services.len()), (5, 5));
    for pod in pods.values() {
        let owners: Vec<_> = pod
            .owner_references()
            .iter()
            .map(|o| (o.uid.clone(), o.controller))
            .collect();
        assert_eq!(owners, [(job.uid().unwrap(), Some(true))], "f20: one owner");
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(
            spec.priority_class_name.as_deref(),
            Some("system-cluster-critical"),
            "f24"
        );
        assert!(
            spec.volumes
                .iter()
                .flatten()
                .any(|volume| volume.name == "shared")
        );
        assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    }
    let aggregator = &pods[&unit.name];
    assert_eq!(
        pod_ports(aggregator),
        BTreeMap::from([("di-port".to_owned(), 5000)])
    );
    assert_eq!(env_value(aggregator, "AGGREGATOR_PORT"), "5000");
    assert_eq!(aggregator.labels()["replica-type"], "aggregator");
    let resources = aggregator.spec.as_ref().unwrap().containers[0]
        .resources
        .as_ref();
    assert!(
        resources.is_none_or(|r| r.limits.is_none()),
        "the GPUs are the ddp learners"
    );

    let master = &members[0].name;
    let mut rank = 0;
    for (member, share, cpu, memory) in [
        (&members[0], 4, ["2", "4"], ["4Gi", "8Gi"]),
        (&members[1], 4, ["2", "4"], ["4Gi", "8Gi"]),
        (&members[2], 2, ["1", "2"], ["2Gi", "4Gi"]),
    ] {
        let pod = &pods[&member.name];
        let is_master = rank == 0;
        for (name, expected) in [
            ("WORLD_SIZE", "10".to_owned()),
            ("LOCAL_WORLD_SIZE", share.to_string()),
            ("START_RANK", rank.to_string()),
            (
                "MASTER_ADDR",
                if is_master {
                    "localhost".to_owned()
                } else {
                    master.clone()
                },
            ),
            ("MASTER_PORT", "10314".to_owned()),
            ("LEARNER_PORT", "7000".to_owned()),
            (
                "KUBERNETES_AGGREGATOR_URL",
                format!("{}.{}:5000", unit.name, space.namespace),
            ),
        ] {
            assert_eq!(env_value(pod, name), expected, "{name}");
        }
        let mut ports = BTreeMap::from([("di-port".to_owned(), 7000 + rank)]);
        ports.extend((1..share).map(|i| (format!("gpu-port-{i}"), 7000 + rank + i)));
        if is_master {
            ports.insert("master-port".to_owned(), 10314);
        }
        assert_eq!(pod_ports(pod), ports);
        assert_eq!(service_ports(&services[&member.name]), ports);
        let labels = pod.labels();
        assert_eq!(labels["replica-type"], "ddp-learner");
        assert_eq!(
            labels["ddp-learner-type"],
            if is_master {
                "ddp-learner-master"
            } else {
                "ddp-learner-worker"
            }
        );
        assert_eq!(labels["aggregator-name"], unit.name);
        let resources = pod.spec.as_ref().unwrap().containers[0]
            .resources
            .clone()
            .unwrap();
        let lists = [resources.requests.unwrap(), resources.limits.unwrap()];
        for (i, list) in lists.iter().enumerate() {
            assert_eq!(list["nvidia.com/gpu"].0, share.to_string());
            assert_eq!((&*list["cpu"].0, &*list["memory"].0), (cpu[i], memory[i]));
        }
        rank += share;
    }
    manager.stop().await;
}

#[tokio::test]
async fn f20_lost_pod_replaces_whole_learner_group() {
    let space = space_with_aggregator_config().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space
        .create(&Job::new("lost", 0).learners_with(1, &gpu_limit(6)))
        .await;
    let before = space.until_settled("lost").await;
    let unit = desired_entries(&before, Role::Aggregator).remove(0);
    let members = desired_entries(&before, Role::DdpLearner);
    assert_eq!(members.len(), 2);
    endpoint
        .until_listed("lost", std::slice::from_ref(&unit.name))
        .await;

    exit(&space.pods(), &members[1].name, 1).await;
    let is_new = |status: &DIJobStatus| {
        let new = desired_entries(status, Role::Aggregator);
        new[0].name != unit.name && status.learners_ready.as_deref() == Some("1/1")
    };
    let after = space.until("lost", "the unit is replaced", is_new).await;
    let new = desired_entries(&after, Role::Aggregator).remove(0);
    assert_eq!(
        (new.index, new.replaces.as_deref()),
        (unit.index, Some(&*unit.name))
    );
    let fresh = desired_entries(&after, Role::DdpLearner);
    let numbers = |all: &[PlanEntry]| {
        all.iter()
            .map(|e| (e.index, e.gpu_count()))
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(&fresh), numbers(&members));
    let mut left = vec![
        "lost-coordinator".to_owned(),
        new.name.clone(),
        members[1].name.clone(),
    ];
    left.extend(fresh.iter().map(|entry| entry.name.clone()));
    wait_for_objects("pods, and the failed one for its logs", &left, async || {
        space.pods_of("lost").await
    })
    .await;
    endpoint
        .until_listed("lost", std::slice::from_ref(&new.name))
        .await;
    ports_of(&endpoint, &new.name, 6).await;

    // The aggregator reports two of its ddp learners, by URL and by name. It gets one new learner
    // group.
    let body = json!({
        "coordinator": new.name,
        "learners": [format!("{}.{}:22272", fresh[0].name, space.namespace), fresh[1].name],
    });
    let answer = endpoint.report(body.clone()).await;
    let next = answer.pods();
    assert_eq!(
        (next.len(), &answer.body["data"]["coordinator"]),
        (1, &json!(new.name))
    );
    assert_ne!(next[0], new.name);
    let again = endpoint.report(body).await;
    assert_eq!(again.pods(), next);
    let listed = endpoint.get(&format!("aggregator={}", new.name)).await;
    assert_eq!(listed.body["data"]["learners"], json!([]));
    manager.stop().await;
}

#[tokio::test]
async fn f19_removal_counts_learners_of_any_kind() {
    let space = space_with_aggregator_config().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&Job::new("mixed", 0).learners(0)).await;
    space.until_settled("mixed").await;
    let plain = endpoint.add_learners("mixed", 2, 0).await.pods();
    let units = endpoint.add_learners("mixed", 2, 6).await.pods();
    assert_eq!((plain.len(), units.len()), (2, 2));
    let status = space
        .until("mixed", "all are ready", |s| {
            s.learners_ready.as_deref() == Some("4/4")
        })
        .await;
    assert_eq!(desired_entries(&status, Role::DdpLearner).len(), 4);
    endpoint
        .until_listed("mixed", &[&plain[..], &units].concat())
        .await;
    // Replicas that are not ready are removed first. Once this later pod is known, so is the
    // readiness of the earlier ones.
    space.create(&Job::new("mark", 1)).await;
    let mark = space.until_settled("mark").await.plan.remove(0).name;
    endpoint.until_listed("mark", &[mark]).await;

    let gone = endpoint.remove_learners("mixed", 3).await.pods();
    assert_eq!(gone.len(), 3, "{gone:?}");
    assert!(
        units.iter().all(|unit| gone.contains(unit)),
        "the newest first: {gone:?}"
    );
    let mut left = plain.clone();
    left.retain(|name| !gone.contains(name));
    assert_eq!(endpoint.list("mixed").await.pods(), left);
    left.push("mixed-coordinator".to_owned());
    wait_for_objects("pods", &left, async || space.pods_of("mixed").await).await;
    wait_for_objects("services", &left, async || space.services_of("mixed").await).await;
    manager.stop().await;
}

#[tokio::test]
async fn f23_only_learner_groups_wait_for_aggregator_config() {
    let space = Space::new().await;
    common_nodes(&space).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space
        .create(&Job::new("bare", 1).learners_with(1, &gpu_limit(2)))
        .await;
    let lacks = |s: &DIJobStatus| {
        s.reason.as_deref() == Some("MissingAggregatorConfig")
            && s.collectors_ready.as_deref() == Some("1/1")
    };
    let status = space
        .until("bare", "the missing AggregatorConfig is reported", lacks)
        .await;
    space.until_event("bare", "MissingAggregatorConfig").await;
    let unit = desired_entries(&status, Role::Aggregator).remove(0);
    assert_eq!(
        space.pods_of("bare").await.len(),
        2,
        "coordinator and collector"
    );

    let collector = endpoint.add("bare", 1, None).await.pods();
    let refused = endpoint.add_learners("bare", 1, 4).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let said = refused.body["message"].as_str().unwrap();
    assert!(said.contains("AggregatorConfig"), "{said}");
    let one = endpoint.add_learners("bare", 1, 1).await.pods();
    assert_eq!((collector.len(), one.len()), (1, 1));

    create_aggregator_config(&space).await;
    let status = space.until_settled("bare").await;
    assert_eq!(
        desired_entries(&status, Role::Aggregator)[0].name,
        unit.name
    );
    assert_eq!(
        (status.learners_ready.as_deref(), status.reason.as_deref()),
        (Some("2/2"), None)
    );
    let asked = endpoint.add_learners("bare", 1, 4).await;
    assert!(
        asked.body["data"]["learners"][0]
            .as_str()
            .unwrap()
            .ends_with(":5000")
    );
    manager.stop().await;
}

#[tokio::test]
async fn f26_concurrent_learner_requests_are_split_separately() {
    let space = space_with_aggregator_config().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&Job::new("many", 0).learners(0)).await;
    space.until_settled("many").await;
    // Two CPUs and one GiB for each GPU.
    let asked = [2, 4, 6, 9].map(|gpus| {
        let part =
            json!({"replicas": 1, "gpus": gpus, "cpus": 2 * gpus, "memory": format!("{gpus}Gi")});
        let body = json!({"learners": part});
        Caller::send(endpoint.change_request(Method::POST, "", "many", None, body))
    });
    let units = futures::future::join_all(asked).await;
    let status = space
        .until("many", "all are ready", |s| {
            s.learners_ready.as_deref() == Some("4/4")
        })
        .await;
    let pods = space.pods_of("many").await;
    for (answer, expected) in units.iter().zip([&[2][..], &[4], &[4, 2], &[4, 4, 1]]) {
        let unit = &answer.as_ref().unwrap().pods()[0];
        let mut members = desired_entries(&status, Role::DdpLearner);
        members.retain(|e| e.ddp.as_ref().unwrap().aggregator == *unit);
        let shares: Vec<_> = members.iter().map(PlanEntry::gpu_count).collect();
        assert_eq!(shares, expected);
        for (member, gpus) in members.iter().zip(shares) {
            let main = &pods[&member.name].spec.as_ref().unwrap().containers[0];
            let share = json!({
                "cpu": (2 * gpus).to_string(), "memory": format!("{gpus}Gi"), "nvidia.com/gpu": gpus.to_string(),
            });
            assert_eq!(
                serde_json::to_value(&main.resources).unwrap(),
                json!({"requests": share, "limits": share}),
                "of {expected:?}"
            );
        }
        let world: i32 = expected.iter().sum();
        let ports = ports_of(&endpoint, unit, usize::try_from(world).unwrap()).await;
        assert_eq!(
            ports,
            (22271..22271 + world).collect::<Vec<_>>(),
            "one for each process"
        );
    }
    let numbers: BTreeSet<_> = desired_entries(&status, Role::DdpLearner)
        .iter()
        .map(|e| e.index)
        .collect();
    assert_eq!(numbers, (0..7).collect());
    manager.stop().await;
}

#[tokio::test]
async fn f35_new_nodes_are_used_for_allocation() {
    let space = space_with_aggregator_config().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let job = Job::new("later", 0)
        .learners_with(1, &gpu_limit(4))
        .with(|spec| {
            let tolerations = json!([{"key": "tests/f35", "operator": "Exists"}]);
            spec["learner"]["template"]["spec"]["tolerations"] = tolerations;
        });
    space.create(&job).await;
    let status = space.until_settled("later").await;
    assert_eq!(desired_entries(&status, Role::DdpLearner).len(), 1);
    // Pods of other tests do not tolerate the taint of these nodes.
    let nodes = (0..5).map(|i| GpuNode {
        name: format!("f35-{i}"),
        gpus: 1,
        cordoned: false,
        taint: Some("tests/f35"),
    });
    make_nodes(&space, &nodes.collect::<Vec<_>>()).await;
    eventually("a unit is split by the new nodes", async || {
        let unit = endpoint.list("later").await.pods();
        for name in &unit {
            endpoint.report_failed("later", name).await;
        }
        let status = space.jobs().get("later").await.unwrap().status.unwrap();
        let members = desired_entries(&status, Role::DdpLearner);
        if members.len() == 4 {
            Ok(())
        } else {
            Err(format!("{members:?}"))
        }
    })
    .await;
    manager.stop().await;
}

#[tokio::test]
async fn scale_down_deletes_whole_learner_group() {
    let space = space_with_aggregator_config().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space
        .create(&Job::new("fewer", 1).learners_with(2, &gpu_limit(6)))
        .await;
    let status = space.until_settled("fewer").await;
    assert_eq!(desired_entries(&status, Role::DdpLearner).len(), 4);
    let patch = Patch::Merge(json!({"spec": {"learner": {"replicas": 1}}}));
    space
        .jobs()
        .patch("fewer", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let status = space
        .until("fewer", "one learner group remains", |s| {
            s.learners_ready.as_deref() == Some("1/1") && s.plan.len() == 4
        })
        .await;
    let mut left: Vec<_> = status.plan.iter().map(|entry| entry.name.clone()).collect();
    left.push("fewer-coordinator".to_owned());
    wait_for_objects("pods", &left, async || space.pods_of("fewer").await).await;
    wait_for_objects("services", &left, async || space.services_of("fewer").await).await;
    manager.stop().await;
}
