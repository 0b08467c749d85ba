use serde_json::{Value, json};

use super::*;

fn workload(name: &str, spec: &Value, reclaimed: i64, is_reserved: bool) -> DynamicObject {
    let status = if is_reserved { "True" } else { "False" };
    let object = json!({
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": status}],
            "reclaimablePods": [{"name": "main", "count": reclaimed}],
        },
    });
    serde_json::from_value(object).unwrap()
}

fn spec(queue: &str, names: &[&str]) -> Value {
    let pod_sets = names.iter().map(|name| json!({"name": name, "count": 2}));
    let pod_sets: Vec<Value> = pod_sets.collect();
    json!({"queueName": queue, "podSets": pod_sets})
}

#[test]
fn workload_that_webhook_rejects_is_a_violation() {
    let main = spec("team", &["main"]);
    let many: Vec<String> = (0..9).map(|i| format!("set-{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut with_env = main.clone();
    with_env["podSets"][0]["template"]["spec"]["containers"] = json!([{"env": [{"name": "A"}]}]);
    let long = "n".repeat(64);
    for (name, spec, reclaimed, expected) in [
        ("a", &main, 2, None),
        ("a", &main, 3, Some("more reclaimable pods than pods")),
        ("a", &spec("team", &["main", "main"]), 0, Some("one name")),
        ("a", &spec("team", &many), 0, Some("more than 8 pod sets")),
        ("a", &with_env, 0, Some("env in a template")),
        (long.as_str(), &main, 0, Some("name over 63 characters")),
    ] {
        let found = check_workload(None, &workload(name, spec, reclaimed, false)).join("; ");
        match expected {
            None => assert_eq!(found, ""),
            Some(expected) => assert!(found.contains(expected), "{expected}: {found}"),
        }
    }
}

#[test]
fn change_while_quota_is_reserved_is_a_violation() {
    let old = spec("team", &["main"]);
    for (new, reclaimed, expected) in [
        (old.clone(), 1, None),
        (spec("other", &["main"]), 1, Some("queueName changed")),
        (spec("team", &["main", "b"]), 1, Some("podSets changed")),
        (old.clone(), 0, Some("fewer reclaimable pods")),
    ] {
        for (before, after) in [(true, true), (true, false), (false, true)] {
            let before_view = workload("a", &old, 1, before);
            let after_view = workload("a", &new, reclaimed, after);
            let found = check_workload(Some(&before_view), &after_view).join("; ");
            match expected.filter(|_| before && after) {
                None => assert_eq!(found, ""),
                Some(expected) => assert!(found.contains(expected), "{expected}: {found}"),
            }
        }
    }
}

/// A pod of a job with these labels of Kueue.
fn pod(labels: &[&str]) -> DynamicObject {
    let labels: BTreeMap<&str, &str> = labels.iter().map(|key| (*key, "all")).collect();
    serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}})).unwrap()
}

#[test]
fn admitted_pod_has_pod_set_and_cluster_queue() {
    let cases: [(&[&str], Option<&str>); 4] = [
        (&[], None),
        (&[POD_SET_LABEL], None),
        (&[CLUSTER_QUEUE_LABEL], None),
        (&[POD_SET_LABEL, CLUSTER_QUEUE_LABEL], Some("all")),
    ];
    for (labels, expected) in cases {
        let queue = admitting_queue(&pod(labels));
        assert_eq!(queue.as_deref(), expected, "{labels:?}");
    }
}

#[test]
fn unadmitted_pod_of_job_in_queue_is_a_violation() {
    let found = check_unadmitted(&pod(&[]), Some("team")).join("; ");
    assert!(
        found.starts_with("pod a of a job in queue team lacks"),
        "{found}"
    );
    assert_eq!(check_unadmitted(&pod(&[]), None), Vec::<String>::new());
}

#[test]
fn pods_over_quota_are_a_violation() {
    let quotas = HashMap::from([("all".to_owned(), Amounts::from([("cpu".to_owned(), 2)]))]);
    let pod = |queue: &str| LivePod {
        queue: queue.to_owned(),
        requests: Amounts::from([("cpu".to_owned(), 1), ("memory".to_owned(), 9)]),
    };
    let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    let mut live = LivePods::from([
        (key("one", "a"), pod("all")),
        (key("two", "a"), pod("all")),
        (key("two", "b"), pod("other")),
    ]);
    assert_eq!(check_quotas(&live, &quotas), Vec::<String>::new());
    live.insert(key("one", "b"), pod("all"));
    let found = check_quotas(&live, &quotas).join("; ");
    assert!(found.ends_with(": one/a one/b two/a"), "{found}");
}

#[test]
fn monitor_needs_pods_and_admissions_of_each_namespace() {
    let namespaces = ["one".to_owned(), "two".to_owned()];
    let mut seen = Seen::default();
    seen.pods.extend(namespaces.clone());
    seen.admissions.insert("one".to_owned());
    assert!(seen.has_all_of(&namespaces[..1]));
    assert!(!seen.has_all_of(&namespaces));
    seen.admissions.insert("two".to_owned());
    assert!(seen.has_all_of(&namespaces));
    seen.pods.remove("one");
    assert!(!seen.has_all_of(&namespaces));
}
