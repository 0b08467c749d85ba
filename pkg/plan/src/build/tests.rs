use serde_json::{Value, json};

use super::*;

fn job(learner: &Value) -> DIJob {
    serde_json::from_value(json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {
            "priorityClassName": "high",
            "coordinator": {"template": {"spec": {"containers": [{"name": "di-container"}]}}},
            "collector": {"template": {"spec": {"priorityClassName": "own", "containers": [{"name": "di-container"}]}}},
            "learner": {"template": {"spec": {"containers": [learner]}}},
        },
        "status": {"plan": [{"name": "a", "type": "Aggregator", "origin": "Declared", "index": 0, "port": 5000}]},
    }))
    .unwrap()
}

fn entry(role: Role, more: &Value) -> PlanEntry {
    let mut entry = json!({"name": "n", "type": role, "origin": "Declared", "index": 3});
    entry
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    serde_json::from_value(entry).unwrap()
}

fn ddp(gpus: u32, world_size: u32, start_rank: u32, master: Option<&str>) -> PlanEntry {
    let place = json!({"aggregator": "a", "worldSize": world_size, "startRank": start_rank, "master": master});
    entry(
        Role::DdpLearner,
        &json!({"resources": {"gpus": gpus.to_string()}, "ddp": place}),
    )
}

fn built(job: &DIJob, entry: &PlanEntry) -> Pod {
    let template = serde_json::from_value(json!({"spec": {"containers": [{
        "name": "di-container", "ports": [{"name": "di-port", "containerPort": 4000}],
    }]}}));
    pod(
        job,
        entry,
        Some(&template.unwrap()),
        &BuildSettings::default(),
    )
    .unwrap()
}

fn ports_of(pod: &Pod) -> Vec<(String, i32)> {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let ports = containers.iter().flat_map(|c| c.ports.iter().flatten());
    ports
        .map(|port| (port.name.clone().unwrap(), port.container_port))
        .collect()
}

fn value(pod: &Pod, name: &str) -> String {
    let env = pod.spec.as_ref().unwrap().containers[0]
        .env
        .as_ref()
        .unwrap();
    let found = env.iter().find(|variable| variable.name == name);
    found
        .and_then(|variable| variable.value.clone())
        .unwrap_or_default()
}

#[test]
fn f24_every_pod_has_the_jobs_priority_class_unless_its_template_names_one() {
    let job = job(&json!({"name": "di-container"}));
    for (entry, class) in [
        (entry(Role::Coordinator, &json!({})), "high"),
        (entry(Role::Collector, &json!({})), "own"),
        (entry(Role::Learner, &json!({})), "high"),
        (entry(Role::Aggregator, &json!({"port": 5000})), "high"),
        (ddp(2, 2, 0, None), "high"),
    ] {
        let pod = built(&job, &entry);
        assert_eq!(
            pod.spec.unwrap().priority_class_name.as_deref(),
            Some(class),
            "{}",
            entry.role
        );
    }
}

#[test]
fn a_class_that_is_empty_is_none_and_the_jobs_brings_its_own_priority() {
    let mut job = job(&json!({"name": "di-container"}));
    for (own, priority, expected) in [
        (Some(""), Some(0), (Some("high"), None, None)),
        (None, Some(1000), (Some("high"), None, None)),
        (
            Some("own"),
            Some(1000),
            (Some("own"), Some(1000), Some("PreemptLowerPriority")),
        ),
    ] {
        let pod = job.spec.coordinator.template.spec.as_mut().unwrap();
        pod.priority_class_name = own.map(str::to_owned);
        pod.priority = priority;
        pod.preemption_policy = Some("PreemptLowerPriority".to_owned());
        let spec = built(&job, &entry(Role::Coordinator, &json!({})))
            .spec
            .unwrap();
        assert_eq!(
            (
                spec.priority_class_name.as_deref(),
                spec.priority,
                spec.preemption_policy.as_deref()
            ),
            expected
        );
    }
}

#[test]
fn nothing_is_started_again_where_the_template_does_not_say_so() {
    let mut job = job(&json!({"name": "di-container"}));
    for (own, expected) in [
        (None, "Never"),
        (Some(""), "Never"),
        (Some("OnFailure"), "OnFailure"),
        (Some("Always"), "Always"),
    ] {
        let pod = job.spec.coordinator.template.spec.as_mut().unwrap();
        pod.restart_policy = own.map(str::to_owned);
        let built = built(&job, &entry(Role::Coordinator, &json!({})));
        let policy = built.spec.unwrap().restart_policy;
        assert_eq!(policy.as_deref(), Some(expected), "{own:?}");
    }
}

#[test]
fn a_port_that_stands_without_its_name_is_named_and_not_added() {
    let ports = |ports: &Value| {
        let mut job = job(&json!({"name": "di-container"}));
        let template = json!({"spec": {"containers": [{"name": "di-container", "ports": ports}]}});
        job.spec.coordinator.template = serde_json::from_value(template).unwrap();
        let pod = built(&job, &entry(Role::Coordinator, &json!({})));
        serde_json::to_value(&pod.spec.unwrap().containers[0].ports).unwrap()
    };
    assert_eq!(
        ports(&json!([{"containerPort": 80}, {"containerPort": 22273, "hostPort": 22273}])),
        json!([{"containerPort": 80}, {"name": "di-port", "containerPort": 22273, "hostPort": 22273}])
    );
    for other in [
        json!({"containerPort": 22273, "name": "http"}),
        json!({"containerPort": 22273, "protocol": "UDP"}),
    ] {
        assert_eq!(
            ports(&json!([other])),
            json!([other, {"name": "di-port", "containerPort": 22273}])
        );
    }
}

#[test]
fn the_port_of_the_node_moves_with_that_of_the_container() {
    for (host, expected) in [(7000, 7004), (8000, 8004), (0, 0)] {
        let port = json!({"name": "di-port", "containerPort": 7000, "hostPort": host});
        let job = job(&json!({"name": "di-container", "ports": [port]}));
        let pod = built(&job, &ddp(3, 7, 4, Some("first")));
        let ports = pod.spec.unwrap().containers[0].ports.clone().unwrap();
        assert_eq!(
            (ports[0].container_port, ports[0].host_port),
            (7004, Some(expected))
        );
    }
}

/// Ports of the node that a pod wants more than once; in the node's network each of a container is one.
fn wanted_twice(pod: &Pod) -> bool {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let ports = containers.iter().flat_map(|c| c.ports.iter().flatten());
    let mut seen = std::collections::HashSet::new();
    let wanted = ports.map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or_default();
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        (protocol, port.host_ip.as_deref(), port.container_port)
    });
    !wanted.into_iter().all(|place| seen.insert(place))
}

#[test]
fn on_the_nodes_network_what_the_validator_takes_wants_no_port_twice() {
    let gpus = json!({"limits": {"nvidia.com/gpu": "4"}});
    let first = |port: i32| json!({"name": "di-port", "containerPort": port});
    let metrics = |port: i32| json!({"name": "metrics", "containerPort": port});
    for (main, side, is_fine) in [
        (json!([]), json!([]), true),
        (json!([metrics(22270)]), json!([]), true),
        (json!([metrics(22271)]), json!([]), false),
        (json!([metrics(22272)]), json!([]), false),
        (json!([metrics(22274)]), json!([]), false),
        (json!([metrics(22275)]), json!([]), true),
        (json!([]), json!([metrics(22273)]), false),
        (json!([]), json!([{"containerPort": 22273}]), false),
        (
            json!([]),
            json!([{"containerPort": 22273, "protocol": "UDP"}]),
            true,
        ),
        (json!([]), json!([{"containerPort": 10314}]), false),
        (json!([{"containerPort": 10314}]), json!([]), true),
        (
            json!([{"containerPort": 22271, "protocol": ""}, {"containerPort": 22272}]),
            json!([]),
            true,
        ),
        (
            json!([first(7000), {"containerPort": 7002}]),
            json!([]),
            true,
        ),
        (json!([first(7000), metrics(7003)]), json!([]), false),
        (json!([first(7000), metrics(22272)]), json!([]), true),
        (json!([first(10312)]), json!([metrics(10316)]), false),
        (json!([first(10312)]), json!([metrics(10317)]), true),
    ] {
        let learner = json!({"template": {"spec": {"hostNetwork": true, "containers": [
            {"name": "di-container", "image": "i", "resources": gpus, "ports": main},
            {"name": "side", "image": "i", "ports": side},
        ]}}});
        let coordinator = json!({"name": "di-container", "image": "i"});
        let object = json!({
            "metadata": {"name": "j", "namespace": "ns"},
            "spec": {
                "coordinator": {"template": {"spec": {"containers": [coordinator]}}},
                "learner": learner,
            },
        });
        let job: DIJob = serde_json::from_value(object).unwrap();
        let faults = di_api::validation::dijob_faults(&job);
        assert_eq!(faults.is_empty(), is_fine, "{main} {side}: {faults:?}");
        let (rest, whole) = (ddp(2, 4, 2, Some("n")), ddp(4, 4, 0, None));
        let pods = [ddp(2, 4, 0, None), rest, whole].map(|entry| built(&job, &entry));
        let twice = pods.iter().any(wanted_twice);
        assert_eq!(twice, !is_fine, "{main} {side}");
    }
}

#[test]
fn f20_every_pod_has_one_owner_and_it_is_the_job() {
    let job = job(&json!({"name": "di-container"}));
    for entry in [
        entry(Role::Aggregator, &json!({"port": 5000})),
        ddp(2, 2, 0, None),
    ] {
        let owners = built(&job, &entry).metadata.owner_references.unwrap();
        let owners: Vec<_> = owners.iter().map(|o| (&*o.uid, o.controller)).collect();
        assert_eq!(owners, [("u", Some(true))]);
    }
}

#[test]
fn each_process_has_its_port_on_pod_and_service() {
    let own = |name: &str, port: i32| (name.to_owned(), port);
    let named = json!({"name": "di-container", "ports": [
        {"name": "metrics", "containerPort": 9}, {"name": "di-port", "containerPort": 7000},
    ]});
    let job = job(&named);
    let second = ddp(3, 7, 4, Some("first"));
    let pod = built(&job, &second);
    let expected = [
        own("metrics", 9),
        own("di-port", 7004),
        own("gpu-port-1", 7005),
        own("gpu-port-2", 7006),
    ];
    assert_eq!(ports_of(&pod), expected);
    let service = service(&job, &second).spec.unwrap().ports.unwrap();
    let service: Vec<_> = service
        .into_iter()
        .map(|p| (p.name.unwrap(), p.port))
        .collect();
    assert_eq!(service, expected[1..]);
    assert_eq!(
        (value(&pod, "LEARNER_PORT"), value(&pod, "MASTER_ADDR")),
        ("7000".into(), "first".into())
    );
    assert_eq!(value(&pod, "KUBERNETES_AGGREGATOR_URL"), "a.ns:5000");
    assert_eq!(
        pod.metadata.labels.unwrap()["ddp-learner-type"],
        "ddp-learner-worker"
    );

    let first = built(&job, &ddp(4, 7, 0, None));
    assert_eq!(ports_of(&first).last(), Some(&own("master-port", 10314)));
    assert_eq!(value(&first, "MASTER_ADDR"), "localhost");
    // An aggregator keeps the port that it was planned with.
    let aggregator = built(
        &job,
        &entry(
            Role::Aggregator,
            &json!({"port": 5000, "resources": {"gpus": "7", "cpus": "7"}}),
        ),
    );
    assert_eq!(ports_of(&aggregator), [own("di-port", 5000)]);
    assert_eq!(value(&aggregator, "AGGREGATOR_PORT"), "5000");
    assert_eq!(aggregator.spec.unwrap().containers[0].resources, None);
}

#[test]
fn the_meeting_point_makes_way_for_the_processes() {
    let at = |port: i32| {
        job(&json!({"name": "di-container", "ports": [{"name": "di-port", "containerPort": port}]}))
    };
    for (first, expected) in [
        (10310, 10318),
        (10314, 10322),
        (10306, 10314),
        (10315, 10314),
    ] {
        for entry in [ddp(4, 8, 0, None), ddp(4, 8, 4, Some("first"))] {
            assert_eq!(
                value(&built(&at(first), &entry), "MASTER_PORT"),
                expected.to_string(),
                "{first}"
            );
        }
    }
}

#[test]
fn f25_requests_and_limits_are_shared_each_as_they_are() {
    let job = job(&json!({"name": "di-container", "resources": {
        "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"},
        "limits": {"cpu": "4", "nvidia.com/gpu": "8", "ephemeral-storage": "1Gi"},
    }}));
    let resources = |entry: &PlanEntry| {
        let resources = built(&job, entry).spec.unwrap().containers[0]
            .resources
            .clone();
        serde_json::to_value(resources.unwrap()).unwrap()
    };
    assert_eq!(
        resources(&ddp(2, 8, 6, Some("first"))),
        json!({
            "requests": {"cpu": "250m", "memory": "256Mi", "nvidia.com/gpu": "2"},
            "limits": {"cpu": "1", "nvidia.com/gpu": "2", "ephemeral-storage": "1Gi"},
        })
    );
    // What was asked for stands over it.
    let mut asked = ddp(2, 8, 6, Some("first"));
    asked.resources.cpus = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity(
        "3".into(),
    ));
    let resources = resources(&asked);
    assert_eq!(
        (&resources["requests"]["cpu"], &resources["limits"]["cpu"]),
        (&json!("3"), &json!("3"))
    );
}

#[test]
fn a_pod_is_given_the_variables_of_its_role_and_then_its_templates_own() {
    let own = json!({"name": "di-container", "env": [{"name": "OWN"}]});
    let mut job = job(&own);
    job.spec.coordinator.template = job.spec.learner.as_ref().unwrap().template.clone();
    for (entry, own) in [
        (entry(Role::Coordinator, &json!({})), &["OWN"][..]),
        (entry(Role::Collector, &json!({})), &[]),
        (entry(Role::Learner, &json!({})), &["OWN"]),
        (entry(Role::Aggregator, &json!({"port": 5000})), &[]),
        (ddp(2, 4, 2, Some("first")), &["OWN"]),
    ] {
        let pod = built(&job, &entry).spec.unwrap();
        let env = pod.containers[0].env.iter().flatten();
        let names: Vec<_> = env.map(|variable| variable.name.as_str()).collect();
        let expected: Vec<_> = entry.role.variables().chain(own.iter().copied()).collect();
        assert_eq!(names, expected, "{}", entry.role);
    }
}

#[test]
fn a_pod_tells_the_place_it_was_made_for() {
    let job = job(&json!({"name": "di-container", "env": [{"name": "WORLD_SIZE", "value": "99"}]}));
    for entry in [ddp(4, 6, 0, None), ddp(2, 6, 4, Some("first"))] {
        let view = crate::PodView::new(&built(&job, &entry)).unwrap();
        let told = view.ddp.unwrap();
        assert_eq!(
            (Some(told.place), told.gpus),
            (entry.ddp.clone(), entry.gpus())
        );
    }
}
