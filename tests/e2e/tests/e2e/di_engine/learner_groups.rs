//! Learners with several GPUs: DI-engine's aggregator and its ddp learners.

use std::collections::BTreeSet;

use di_api::AggregatorConfig;
use di_e2e::{
    ClientState, Coordinator, Namespace, Workload, eventually, exec_command, observe, owned_pods,
    pod_spec, post_command, set_node_gpus,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;

use super::{pod_of, urls};

/// Waits until the aggregator at this URL is connected to this number of ddp learner processes, and
/// returns them.
async fn wait_for_processes(ns: &Namespace, aggregator: &str, number: usize) -> BTreeSet<String> {
    let all = |seen: &Option<ClientState>| {
        seen.as_ref()
            .is_some_and(|seen| seen.learners.len() == number)
    };
    let seen = eventually(
        "connected to all processes",
        || observe(ns, pod_of(aggregator)),
        all,
    )
    .await;
    let seen = seen.unwrap();
    assert!(seen.sync_alive, "{seen:#?}");
    seen.learners
}

#[tokio::test]
async fn learner_group_is_replaced_as_a_whole() {
    Namespace::with("aggregator", |ns| async move {
        set_node_gpus(&ns, 2).await;
        let mut template = Workload::template(&["python3", "/programs/aggregator.py"]);
        template["spec"]["volumes"] = Workload::volumes();
        // The coordinator's client disconnects from a lost aggregator only after it has connected to
        // the next one, and fails if the lost one has ended by then. That start is a busy loop of a
        // minute, so limit its CPU. The test deletes all pods at its end.
        template["spec"]["terminationGracePeriodSeconds"] = json!(600);
        template["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "300m"});
        let config: AggregatorConfig = serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2",
            "kind": "AggregatorConfig",
            "metadata": {"name": "aggregator-config"},
            "spec": {"aggregator": {"template": template}},
        }))
        .unwrap();
        ns.api()
            .create(&PostParams::default(), &config)
            .await
            .unwrap();

        let request = json!({"learners": {"gpus": "3", "replicas": 1}});
        let mut workload = Workload::new("real", &request, 1, 1);
        // The nodes have too few GPUs for the old and the new pods at the same time.
        let learner = workload.0.spec.learner.as_mut().unwrap();
        pod_spec(&mut learner.template)["terminationGracePeriodSeconds"] = json!(5);
        let coordinator = workload.submit(&ns).await;
        let one = |seen: &ClientState| seen.started && seen.learners.len() == 1;
        let learners = coordinator
            .wait_until("connected to the aggregator", one)
            .await
            .learners;
        let aggregator = learners.first().unwrap();
        let first = wait_for_processes(&ns, aggregator, 3).await;
        let ports: Vec<_> = first
            .iter()
            .map(|url| url.rsplit(':').next().unwrap())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        assert_eq!(
            ports,
            ["22271", "22272", "22273"],
            "base port and rank: {first:?}"
        );
        let pods: BTreeSet<_> = first.iter().map(|url| pod_of(url)).collect();
        assert_eq!(pods.len(), 2, "no node has three GPUs: {first:?}");

        let lost = json!({"learners": [first.first().unwrap()]});
        post_command(&ns, pod_of(aggregator), "/give-up", &lost).await;
        let second = wait_for_other_learner(&coordinator, &learners).await;
        let members = wait_for_processes(&ns, second.first().unwrap(), 3).await;
        assert!(members.is_disjoint(&first), "{members:?}");

        // The coordinator disconnects from an aggregator that still runs, so its sync thread
        // survives.
        let dies = pod_of(members.first().unwrap());
        exec_command(&ns, dies, &["sh", "-c", "kill -USR1 1"]).await;
        let third = wait_for_other_learner(&coordinator, &second).await;
        let fresh = wait_for_processes(&ns, third.first().unwrap(), 3).await;
        assert!(fresh.is_disjoint(&members), "{fresh:?}");
        check_unschedulable_is_not_listed(&ns, &coordinator, &third).await;
        coordinator.close_cleanly().await;
    })
    .await;
}

/// Waits until the coordinator has replaced its learner, and returns the new one.
async fn wait_for_other_learner(
    coordinator: &Coordinator,
    before: &BTreeSet<String>,
) -> BTreeSet<String> {
    let another =
        |seen: &ClientState| seen.learners.len() == 1 && seen.learners.is_disjoint(before);
    let seen = coordinator
        .wait_until_soon("another aggregator", another)
        .await;
    seen.learners
}

/// Requests a learner group that does not fit, checks that it is not listed, and removes it and
/// then the usable one.
async fn check_unschedulable_is_not_listed(
    ns: &Namespace,
    coordinator: &Coordinator,
    usable: &BTreeSet<String>,
) {
    // No node has a thousand CPUs.
    let part = json!({"data": {"learners": {"gpus": "2", "replicas": 1, "cpus": 1000}}});
    let added = coordinator.call("post_replicas", &part).await;
    let stuck = urls(&added, "learners");
    assert_eq!(stuck.len(), 1, "{added}");
    let has_no_room = |pods: &Vec<Pod>| format!("{pods:?}").contains("Unschedulable");
    eventually("no room", || owned_pods(ns, "real"), has_no_room).await;
    let alone = |seen: &ClientState| seen.learners == *usable;
    coordinator
        .wait_until_soon("the usable one alone", alone)
        .await;
    let listed = coordinator.call("get_replicas", &json!({})).await;
    assert_eq!(&urls(&listed, "learners"), usable);

    let one = json!({"n_collectors": 0, "n_learners": 1});
    for goes in [&stuck, usable] {
        let removed = coordinator.call("delete_replicas", &one).await;
        assert_eq!(&urls(&removed, "learners"), goes);
    }
    let none = |seen: &ClientState| seen.learners.is_empty();
    coordinator.wait_until_soon("none", none).await;
}
