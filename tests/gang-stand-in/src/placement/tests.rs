use di_api::quantity::NANOS_PER_UNIT;

use super::*;

const GPU: &str = "nvidia.com/gpu";

/// A pod `job/name`. `group` is the group of its job, if it has one.
fn pod(name: &str, is_grouped: bool, gpus: i128, node: Option<&str>) -> PodView {
    let (job, _) = name.split_once('/').unwrap();
    PodView {
        name: name.to_owned(),
        uid: format!("uid of {name}"),
        job: job.to_owned(),
        group: is_grouped.then(|| job.to_owned()),
        requests: Amounts::from([(GPU.to_owned(), gpus * NANOS_PER_UNIT)]),
        node: node.map(str::to_owned),
        message: None,
    }
}

/// Decisions on a cluster with one node, as `name: node or message`.
fn decisions(gpus: i128, minimum: usize, pods: &[PodView]) -> Vec<String> {
    let free = Amounts::from([(GPU.to_owned(), gpus * NANOS_PER_UNIT)]);
    let nodes = BTreeMap::from([("node".to_owned(), free)]);
    let groups = ["a", "b"].map(|group| (group.to_owned(), minimum));
    let decisions = decide(pods, nodes, &BTreeMap::from(groups)).into_iter();
    let decisions = decisions.map(|(pod, decision)| match decision {
        Decision::Bind(node) => format!("{}: {node}", pod.name),
        Decision::Wait(message) => format!("{}: {message}", pod.name),
    });
    decisions.collect()
}

const NO_GPU: &str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";

#[test]
fn group_is_bound_as_a_whole_or_waits() {
    let pods = ["a/1", "a/2", "b/1", "b/2"].map(|name| pod(name, true, 1, None));
    let waiting = ["b/1", "b/2"].map(|name| format!("{name}: {NO_GPU}"));
    let bound = ["a/1: node", "a/2: node"].map(str::to_owned);
    assert_eq!(decisions(3, 2, &pods), [bound, waiting].concat());
    let partial = decisions(3, 3, &pods[..2]);
    let message = "the group has 2 of at least 3 pods";
    assert_eq!(
        partial,
        ["a/1", "a/2"].map(|name| format!("{name}: {message}"))
    );
}

#[test]
fn further_pods_of_placed_group_are_bound_alone() {
    let bound = ["a/1", "a/2"].map(|name| pod(name, true, 1, Some("node")));
    let waiting = ["a/3", "a/4"].map(|name| pod(name, true, 1, None));
    let pods = [bound, waiting].concat();
    let expected = ["a/3: node".to_owned(), format!("a/4: {NO_GPU}")];
    assert_eq!(decisions(3, 2, &pods), expected);
}

/// A scheduler may have been killed between two bindings.
#[test]
fn half_bound_group_is_completed_or_waits_as_a_whole() {
    let pods = [("a/1", Some("node")), ("a/2", None), ("a/3", None)];
    let pods = pods.map(|(name, node)| pod(name, true, 1, node));
    let waiting = ["a/2", "a/3"];
    let bound = waiting.map(|name| format!("{name}: node"));
    assert_eq!(decisions(3, 3, &pods), bound);
    let missing = waiting.map(|name| format!("{name}: {NO_GPU}"));
    assert_eq!(decisions(2, 3, &pods), missing);
}

#[test]
fn jobs_without_groups_take_turns_and_block_each_other() {
    let names = [("a/1", 1), ("a/2", 2), ("b/1", 1), ("b/2", 2)];
    let pods = names.map(|(name, gpus)| pod(name, false, gpus, None));
    let expected = ["a/1: node", "b/1: node"].map(str::to_owned);
    let waiting = ["a/2", "b/2"].map(|name| format!("{name}: {NO_GPU}"));
    assert_eq!(decisions(3, 2, &pods), [expected, waiting].concat());
}
