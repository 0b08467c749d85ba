use di_fixtures::Job;
use serde_json::{Value, json};

use super::*;
use crate::pod::build_pod;

fn job_with_learner(learner: &Value) -> DIJob {
    Job::test()
        .collectors(0)
        .spec(json!({
            "priorityClassName": "high",
            "collector": {"template": {"spec": {"priorityClassName": "own"}}},
            "learner": {"template": {"spec": {"containers": [learner]}}},
        }))
        .status(json!({"plan": [
            {"name": "a", "type": "Aggregator", "origin": "Declared", "index": 0, "port": 5000},
        ]}))
        .build()
}

fn plan_entry(role: Role, more: &Value) -> PlanEntry {
    let mut entry = json!({"name": "n", "type": role, "origin": "Declared", "index": 3});
    entry
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    serde_json::from_value(entry).unwrap()
}

fn ddp_entry(gpus: u32, world_size: u32, start_rank: u32, master: Option<&str>) -> PlanEntry {
    let place = json!({"aggregator": "a", "worldSize": world_size, "startRank": start_rank, "master": master});
    plan_entry(
        Role::DdpLearner,
        &json!({"resources": {"gpus": gpus.to_string()}, "ddp": place}),
    )
}

fn build_for_test(job: &DIJob, entry: &PlanEntry) -> Pod {
    let template = serde_json::from_value(json!({"spec": {"containers": [{
        "name": "di-container", "ports": [{"name": "di-port", "containerPort": 4000}],
    }]}}));
    let template: PodTemplate = template.unwrap();
    let pod = build_pod(job, entry, Some(&template), &BuildSettings::default());
    pod.unwrap().decode().unwrap()
}

#[test]
fn unknown_fields_of_template_reach_the_pod() {
    let main = json!({
        "name": "di-container", "notYet": {"a": [1]}, "ports": [{"containerPort": 1, "notYet": 2}],
        "env": [{"name": "A", "valueFrom": {"notYet": {"b": 3}}}],
        "resources": {"limits": {"cpu": 1}, "notYet": [4]},
    });
    let mut job = job_with_learner(&main);
    let template = &mut job.spec.learner.as_mut().unwrap().template;
    template.0["spec"]["notYet"] = json!("x");
    let labels = json!({"labels": {"set": "1", "empty": null}});
    template.0.insert("metadata".to_owned(), labels);
    let entry = ddp_entry(2, 4, 2, Some("first"));
    let pod = build_pod(&job, &entry, None, &BuildSettings::default()).unwrap();
    let labels = pod.metadata.labels.unwrap();
    assert_eq!((&*labels["set"], &*labels["empty"]), ("1", ""));
    let spec = Value::Object(pod.spec);
    let built = &spec["containers"][0];
    assert_eq!(
        (&spec["notYet"], &built["notYet"]),
        (&json!("x"), &json!({"a": [1]}))
    );
    assert_eq!(built["ports"][0], main["ports"][0]);
    assert_eq!(
        built["env"].as_array().unwrap().last(),
        main["env"].as_array().unwrap().last()
    );
    assert_eq!(
        built["resources"],
        json!({"limits": {"cpu": "500m", "nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}, "notYet": [4]})
    );
}

fn ports_of(pod: &Pod) -> Vec<(String, i32)> {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let ports = containers.iter().flat_map(|c| c.ports.iter().flatten());
    ports
        .map(|port| (port.name.clone().unwrap(), port.container_port))
        .collect()
}

fn env_of_pod(pod: &Pod, name: &str) -> String {
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
fn f24_pod_has_priority_class_of_job_or_template() {
    let job = job_with_learner(&json!({"name": "di-container"}));
    for (entry, class) in [
        (plan_entry(Role::Coordinator, &json!({})), "high"),
        (plan_entry(Role::Collector, &json!({})), "own"),
        (plan_entry(Role::Learner, &json!({})), "high"),
        (plan_entry(Role::Aggregator, &json!({"port": 5000})), "high"),
        (ddp_entry(2, 2, 0, None), "high"),
    ] {
        let pod = build_for_test(&job, &entry);
        assert_eq!(
            pod.spec.unwrap().priority_class_name.as_deref(),
            Some(class),
            "{}",
            entry.role
        );
    }
}

#[test]
fn job_priority_class_clears_template_priority() {
    let mut job = job_with_learner(&json!({"name": "di-container"}));
    for (own, priority, expected) in [
        (Some(""), Some(0), (Some("high"), None, None)),
        (None, Some(1000), (Some("high"), None, None)),
        (
            Some("own"),
            Some(1000),
            (Some("own"), Some(1000), Some("PreemptLowerPriority")),
        ),
    ] {
        let pod = &mut job.spec.coordinator.template.0["spec"];
        pod["priorityClassName"] = json!(own);
        pod["priority"] = json!(priority);
        pod["preemptionPolicy"] = json!("PreemptLowerPriority");
        let spec = build_for_test(&job, &plan_entry(Role::Coordinator, &json!({})))
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
fn unset_restart_policy_becomes_never() {
    let mut job = job_with_learner(&json!({"name": "di-container"}));
    for (own, expected) in [
        (None, "Never"),
        (Some(""), "Never"),
        (Some("OnFailure"), "OnFailure"),
        (Some("Always"), "Always"),
    ] {
        let pod = &mut job.spec.coordinator.template.0["spec"];
        pod["restartPolicy"] = json!(own);
        let built = build_for_test(&job, &plan_entry(Role::Coordinator, &json!({})));
        let policy = built.spec.unwrap().restart_policy;
        assert_eq!(policy.as_deref(), Some(expected), "{own:?}");
    }
}

#[test]
fn unnamed_port_with_same_number_gets_name() {
    let ports = |ports: &Value| {
        let mut job = job_with_learner(&json!({"name": "di-container"}));
        let template = json!({"spec": {"containers": [{"name": "di-container", "ports": ports}]}});
        job.spec.coordinator.template = serde_json::from_value(template).unwrap();
        let pod = build_for_test(&job, &plan_entry(Role::Coordinator, &json!({})));
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
fn host_port_moves_with_container_port() {
    for (host, expected) in [(7000, 7004), (8000, 8004), (0, 0)] {
        let port = json!({"name": "di-port", "containerPort": 7000, "hostPort": host});
        let job = job_with_learner(&json!({"name": "di-container", "ports": [port]}));
        let pod = build_for_test(&job, &ddp_entry(3, 7, 4, Some("first")));
        let ports = pod.spec.unwrap().containers[0].ports.clone().unwrap();
        assert_eq!(
            (ports[0].container_port, ports[0].host_port),
            (7004, Some(expected))
        );
    }
}

/// Whether a pod uses a host port twice. With `hostNetwork` each container port is a host port.
fn has_duplicate_port(pod: &Pod) -> bool {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let ports = containers.iter().flat_map(|c| c.ports.iter().flatten());
    let mut seen = std::collections::HashSet::new();
    let host_ports = ports.map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or_default();
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        (protocol, port.host_ip.as_deref(), port.container_port)
    });
    !host_ports.into_iter().all(|port| seen.insert(port))
}

#[test]
fn valid_host_network_job_has_no_duplicate_port() {
    let gpus = json!({"limits": {"nvidia.com/gpu": "4"}});
    let first = |port: i32| json!({"name": "di-port", "containerPort": port});
    let metrics = |port: i32| json!({"name": "metrics", "containerPort": port});
    for (main, side, is_valid) in [
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
        let job: DIJob = Job::test().spec(json!({"learner": learner})).build();
        let faults = di_api::validation::dijob_faults(&job);
        assert_eq!(faults.is_empty(), is_valid, "{main} {side}: {faults:?}");
        let (rest, whole) = (ddp_entry(2, 4, 2, Some("n")), ddp_entry(4, 4, 0, None));
        let pods =
            [ddp_entry(2, 4, 0, None), rest, whole].map(|entry| build_for_test(&job, &entry));
        let has_duplicate = pods.iter().any(has_duplicate_port);
        assert_eq!(has_duplicate, !is_valid, "{main} {side}");
    }
}

#[test]
fn f20_pod_has_job_as_only_owner() {
    let job = job_with_learner(&json!({"name": "di-container"}));
    for entry in [
        plan_entry(Role::Aggregator, &json!({"port": 5000})),
        ddp_entry(2, 2, 0, None),
    ] {
        let owners = build_for_test(&job, &entry)
            .metadata
            .owner_references
            .unwrap();
        let owners: Vec<_> = owners.iter().map(|o| (&*o.uid, o.controller)).collect();
        assert_eq!(owners, [("u", Some(true))]);
    }
}

#[test]
fn process_has_port_on_pod_and_service() {
    let own = |name: &str, port: i32| (name.to_owned(), port);
    let named = json!({"name": "di-container", "ports": [
        {"name": "metrics", "containerPort": 9}, {"name": "di-port", "containerPort": 7000},
    ]});
    let job = job_with_learner(&named);
    let second = ddp_entry(3, 7, 4, Some("first"));
    let pod = build_for_test(&job, &second);
    let expected = [
        own("metrics", 9),
        own("di-port", 7004),
        own("gpu-port-1", 7005),
        own("gpu-port-2", 7006),
    ];
    assert_eq!(ports_of(&pod), expected);
    let service = build_service(&job, &second).spec.unwrap().ports.unwrap();
    let service: Vec<_> = service
        .into_iter()
        .map(|p| (p.name.unwrap(), p.port))
        .collect();
    assert_eq!(service, expected[1..]);
    assert_eq!(
        (
            env_of_pod(&pod, "LEARNER_PORT"),
            env_of_pod(&pod, "MASTER_ADDR")
        ),
        ("7000".into(), "first".into())
    );
    assert_eq!(env_of_pod(&pod, "KUBERNETES_AGGREGATOR_URL"), "a.rl:5000");
    assert_eq!(
        pod.metadata.labels.unwrap()["ddp-learner-type"],
        "ddp-learner-worker"
    );

    let first = build_for_test(&job, &ddp_entry(4, 7, 0, None));
    assert_eq!(ports_of(&first).last(), Some(&own("master-port", 10314)));
    assert_eq!(env_of_pod(&first, "MASTER_ADDR"), "localhost");
    // An aggregator keeps the port in its plan entry.
    let aggregator = build_for_test(
        &job,
        &plan_entry(
            Role::Aggregator,
            &json!({"port": 5000, "resources": {"gpus": "7", "cpus": "7"}}),
        ),
    );
    assert_eq!(ports_of(&aggregator), [own("di-port", 5000)]);
    assert_eq!(env_of_pod(&aggregator, "AGGREGATOR_PORT"), "5000");
    assert_eq!(aggregator.spec.unwrap().containers[0].resources, None);
}

#[test]
fn master_port_avoids_process_ports() {
    let at = |port: i32| {
        job_with_learner(
            &json!({"name": "di-container", "ports": [{"name": "di-port", "containerPort": port}]}),
        )
    };
    for (first, expected) in [
        (10310, 10318),
        (10314, 10322),
        (10306, 10314),
        (10315, 10314),
    ] {
        for entry in [ddp_entry(4, 8, 0, None), ddp_entry(4, 8, 4, Some("first"))] {
            assert_eq!(
                env_of_pod(&build_for_test(&at(first), &entry), "MASTER_PORT"),
                expected.to_string(),
                "{first}"
            );
        }
    }
}

#[test]
fn f25_requests_and_limits_are_split_separately() {
    let job = job_with_learner(&json!({"name": "di-container", "resources": {
        "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"},
        "limits": {"cpu": "4", "nvidia.com/gpu": "8", "ephemeral-storage": "1Gi"},
    }}));
    let resources = |entry: &PlanEntry| {
        let resources = build_for_test(&job, entry).spec.unwrap().containers[0]
            .resources
            .clone();
        serde_json::to_value(resources.unwrap()).unwrap()
    };
    assert_eq!(
        resources(&ddp_entry(2, 8, 6, Some("first"))),
        json!({
            "requests": {"cpu": "250m", "memory": "256Mi", "nvidia.com/gpu": "2"},
            "limits": {"cpu": "1", "nvidia.com/gpu": "2", "ephemeral-storage": "1Gi"},
        })
    );
    // Resources of the request override those of the template.
    let mut asked = ddp_entry(2, 8, 6, Some("first"));
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
fn pod_has_variables_of_role_before_template() {
    let own = json!({"name": "di-container", "env": [{"name": "OWN"}]});
    let mut job = job_with_learner(&own);
    job.spec.coordinator.template = job.spec.learner.as_ref().unwrap().template.clone();
    for (entry, own) in [
        (plan_entry(Role::Coordinator, &json!({})), &["OWN"][..]),
        (plan_entry(Role::Collector, &json!({})), &[]),
        (plan_entry(Role::Learner, &json!({})), &["OWN"]),
        (plan_entry(Role::Aggregator, &json!({"port": 5000})), &[]),
        (ddp_entry(2, 4, 2, Some("first")), &["OWN"]),
    ] {
        let pod = build_for_test(&job, &entry).spec.unwrap();
        let env = pod.containers[0].env.iter().flatten();
        let names: Vec<_> = env.map(|variable| variable.name.as_str()).collect();
        let expected: Vec<_> = entry.role.env_names().chain(own.iter().copied()).collect();
        assert_eq!(names, expected, "{}", entry.role);
    }
}

#[test]
fn ddp_view_of_built_pod_equals_plan_entry() {
    let job = job_with_learner(
        &json!({"name": "di-container", "env": [{"name": "WORLD_SIZE", "value": "99"}]}),
    );
    for entry in [ddp_entry(4, 6, 0, None), ddp_entry(2, 6, 4, Some("first"))] {
        let view = crate::PodView::new(&build_for_test(&job, &entry)).unwrap();
        let found = view.ddp.unwrap();
        assert_eq!(
            (Some(found.place), found.gpus),
            (entry.ddp.clone(), entry.gpu_count())
        );
    }
}

#[test]
fn last_log_lines_are_kept_unless_disabled() {
    let entry = plan_entry(Role::Collector, &json!({}));
    let policy = |own: Option<&str>, tails: bool| {
        let container = json!({"name": "di-container", "terminationMessagePolicy": own});
        let template = json!({"template": {"spec": {"containers": [container]}}});
        let job =
            di_fixtures::Job::test().spec(json!({"collector": template, "failureTails": tails}));
        let pod = build_for_test(&job.build(), &entry);
        pod.spec.unwrap().containers[0]
            .termination_message_policy
            .clone()
    };
    assert_eq!(policy(None, true).as_deref(), Some("FallbackToLogsOnError"));
    assert_eq!(policy(Some("File"), true).as_deref(), Some("File"));
    assert_eq!(policy(None, false), None);
}
