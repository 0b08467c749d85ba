use serde_json::json;

use super::*;
use crate::{cluster_queue, workload::pod_requests};

const GPU: &str = "nvidia.com/gpu";

/// State of a Workload in the tables.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Pending,
    Admitted,
    Evicting,
}
use State::{Admitted, Evicting, Pending};

/// A Workload in the tables: name, priority, pods with a GPU each, how many of them are reclaimed,
/// state.
type Row = (&'static str, i64, i64, i64, State);

/// Returns the Workload of a row. Later positions were created later. Those with quota have it in
/// the flavor `default`.
fn view((position, row): (usize, &Row)) -> WorkloadView {
    let (name, priority, pods, reclaimed, state) = row;
    let status = |is_true: bool| if is_true { "True" } else { "False" };
    let container = json!({"resources": {"limits": {GPU: "1"}}});
    let flavors = json!({GPU: "default"});
    let object = json!({
        "metadata": {
            "name": name, "uid": format!("{name}-uid"),
            "creationTimestamp": format!("2026-01-01T00:00:{position:02}Z"),
        },
        "spec": {
            "priority": priority,
            "podSets": [{
                "name": "main", "count": pods, "template": {"spec": {"containers": [container]}},
            }],
        },
        "status": {
            "admission": {"podSetAssignments": [{"name": "main", "flavors": flavors}]},
            "reclaimablePods": [{"name": "main", "count": reclaimed}],
            "conditions": [
                {"type": "QuotaReserved", "status": status(*state != Pending)},
                {"type": "Evicted", "status": status(*state == Evicting)},
            ],
        },
    });
    WorkloadView::new(&serde_json::from_value(object).unwrap())
}

fn parse_quota(flavors: &[(&str, &[(&str, &str)])], preempts: bool) -> Quota {
    let queue = cluster_queue("queue", flavors, preempts);
    Quota::parse(&queue.data["spec"])
}

fn describe(decisions: &BTreeMap<String, Decision>) -> String {
    let decisions = decisions.iter().map(|(name, decision)| match decision {
        Decision::Admit(assignments) => {
            let flavors = assignments.iter().flat_map(|set| set.flavors.values());
            let flavors: Vec<&str> = flavors.map(String::as_str).collect();
            format!("{name}:{}", flavors.join("+"))
        }
        Decision::Wait(_) => format!("{name}:wait"),
        Decision::Preempt(_) => format!("{name}:preempt"),
    });
    decisions.collect::<Vec<_>>().join(" ")
}

#[test]
fn quota_is_given_by_priority_then_age() {
    let quota = parse_quota(&[("default", &[(GPU, "4")])], false);
    let table: &[(&str, &[Row], &str)] = &[
        (
            "both fit",
            &[("a", 0, 2, 0, Pending), ("b", 0, 2, 0, Pending)],
            "a:default b:default",
        ),
        (
            "higher priority first",
            &[("a", 0, 4, 0, Pending), ("b", 5, 4, 0, Pending)],
            "a:wait b:default",
        ),
        (
            "older first",
            &[("b", 0, 4, 0, Pending), ("a", 0, 4, 0, Pending)],
            "a:wait b:default",
        ),
        (
            "one that does not fit does not block",
            &[("a", 5, 5, 0, Pending), ("b", 0, 2, 0, Pending)],
            "a:wait b:default",
        ),
        (
            "admitted ones use quota",
            &[("a", 0, 3, 0, Admitted), ("b", 5, 2, 0, Pending)],
            "b:wait",
        ),
        (
            "reclaimed pods use none",
            &[("a", 0, 3, 1, Admitted), ("b", 0, 2, 0, Pending)],
            "b:default",
        ),
        (
            "evicted ones use quota until they are released",
            &[("a", 0, 3, 0, Evicting), ("b", 5, 2, 0, Pending)],
            "b:wait",
        ),
    ];
    for (case, rows, expected) in table {
        let views: Vec<WorkloadView> = rows.iter().enumerate().map(view).collect();
        assert_eq!(describe(&decide(&quota, &views)), *expected, "{case}");
    }
}

#[test]
fn preemption_evicts_lowest_priority_then_newest() {
    let quota = parse_quota(&[("default", &[(GPU, "4")])], true);
    let table: &[(&str, &[Row], &str)] = &[
        (
            "lower priority",
            &[("low", 0, 4, 0, Admitted), ("new", 5, 2, 0, Pending)],
            "low:preempt new:wait",
        ),
        (
            "equal priority",
            &[("same", 5, 4, 0, Admitted), ("new", 5, 2, 0, Pending)],
            "new:wait",
        ),
        (
            "not enough",
            &[
                ("high", 9, 3, 0, Admitted),
                ("low", 0, 1, 0, Admitted),
                ("new", 5, 2, 0, Pending),
            ],
            "new:wait",
        ),
        (
            "lowest, then newest, no more than needed",
            &[
                ("medium", 1, 2, 0, Admitted),
                ("older", 0, 1, 0, Admitted),
                ("newer", 0, 1, 0, Admitted),
                ("new", 5, 1, 0, Pending),
            ],
            "new:wait newer:preempt",
        ),
        (
            "one made unnecessary by a later one is spared",
            &[
                ("small", 0, 1, 0, Admitted),
                ("big", 1, 3, 0, Admitted),
                ("new", 5, 3, 0, Pending),
            ],
            "big:preempt new:wait",
        ),
        (
            "an evicted one is enough",
            &[
                ("gone", 9, 2, 0, Evicting),
                ("low", 0, 2, 0, Admitted),
                ("new", 5, 2, 0, Pending),
            ],
            "new:wait",
        ),
        (
            "free quota is kept for the preemptor",
            &[
                ("low", 0, 3, 0, Admitted),
                ("new", 5, 2, 0, Pending),
                ("tiny", 1, 1, 0, Pending),
                ("big", 0, 3, 0, Pending),
            ],
            "big:wait low:preempt new:wait tiny:wait",
        ),
    ];
    for (case, rows, expected) in table {
        let views: Vec<WorkloadView> = rows.iter().enumerate().map(view).collect();
        assert_eq!(describe(&decide(&quota, &views)), *expected, "{case}");
    }
}

#[test]
fn message_says_what_is_lacking() {
    let quota = parse_quota(&[("default", &[(GPU, "4")])], true);
    let rows: [Row; 3] = [
        ("low", 0, 3, 0, Admitted),
        ("new", 5, 3, 0, Pending),
        ("huge", 5, 5, 0, Pending),
    ];
    let views: Vec<WorkloadView> = rows.iter().enumerate().map(view).collect();
    let decisions = decide(&quota, &views);
    let wait = |message: &str| {
        let message = format!("couldn't assign flavors to pod set main: {message}");
        Decision::Wait(message)
    };
    assert_eq!(
        decisions["new"],
        wait(
            "insufficient unused quota for nvidia.com/gpu in flavor default, 2 more needed. \
             Pending the preemption of 1 workload(s)"
        )
    );
    assert_eq!(
        decisions["huge"],
        wait(
            "insufficient quota for nvidia.com/gpu in flavor default, \
             request > maximum capacity (5 > 4)"
        )
    );
    let message = "Preempted to accommodate a workload (UID: new-uid) \
                   due to prioritization in the ClusterQueue";
    assert_eq!(decisions["low"], Decision::Preempt(message.to_owned()));
}

#[test]
fn pod_set_gets_the_first_flavor_that_fits() {
    let flavors: &[(&str, &[(&str, &str)])] = &[
        ("spot", &[("cpu", "2"), (GPU, "0"), (PODS, "9")]),
        ("reserved", &[("cpu", "8"), (GPU, "1"), (PODS, "2")]),
    ];
    let pod_set = |name: &str, count: i128, requests: &Value| PodSet {
        name: name.to_owned(),
        count,
        requests: pod_requests(&json!({"containers": [{"resources": {"requests": requests}}]})),
    };
    let mut workload = view((0, &("a", 0, 0, 0, Pending)));
    workload.pod_sets = vec![
        pod_set("coordinator", 1, &json!({"cpu": "500m"})),
        pod_set("collector", 3, &json!({"cpu": "500m"})),
        pod_set("learner", 1, &json!({"cpu": "1", GPU: "1"})),
    ];
    let views = [workload];
    let decisions = decide(&parse_quota(flavors, false), &views);
    let Decision::Admit(assignments) = &decisions["a"] else {
        panic!("not admitted");
    };
    let flavors = assignments.iter().map(|set| set.flavors["cpu"].as_str());
    assert_eq!(flavors.collect::<Vec<_>>(), ["spot", "spot", "reserved"]);
    assert_eq!(assignments[1].usage[PODS], 3_000_000_000);
    assert_eq!(assignments[1].usage["cpu"], 1_500_000_000);

    // Without pods in the quota they are not counted; any other resource must be covered.
    let quota = parse_quota(&[("spot", &[("cpu", "9")])], false);
    let message = "couldn't assign flavors to pod set learner: \
                   resource nvidia.com/gpu unavailable in ClusterQueue";
    let decision = Decision::Wait(message.to_owned());
    assert_eq!(decide(&quota, &views)["a"], decision);
}

#[test]
fn requests_are_summed_with_limits_for_missing_ones() {
    let requests = pod_requests(&json!({
        "initContainers": [{"resources": {"requests": {"cpu": "64"}}}],
        "containers": [
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", GPU: 1}}},
            {"resources": {"limits": {"cpu": "500m"}}},
            {},
        ],
    }));
    let requests: Vec<_> = requests
        .iter()
        .map(|(resource, amount)| (resource.as_str(), format_amount(*amount)))
        .collect();
    assert_eq!(
        requests,
        [
            ("cpu", "1500m".to_owned()),
            (GPU, "1".to_owned()),
            (PODS, "1".to_owned())
        ]
    );
}
