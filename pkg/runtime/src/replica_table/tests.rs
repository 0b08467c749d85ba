use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn collector(pod: &str) -> (Role, Address) {
    (
        Role::Collector,
        Address::parse(&format!("{pod}.rl:1")).unwrap(),
    )
}

fn pod_names(addresses: &[Address]) -> Vec<&str> {
    addresses
        .iter()
        .map(|address| address.pod.as_str())
        .collect()
}

fn ready_pods(fleet: &ReplicaTable) -> Vec<String> {
    fleet
        .ready_replicas(Role::Collector)
        .into_iter()
        .map(|ready| ready.address.pod)
        .collect()
}

fn table_with(pods: &[&str], now: Instant) -> ReplicaTable {
    let mut fleet = ReplicaTable::new(ReplicaTimeouts::default());
    fleet.sync_listed(
        &pods.iter().map(|pod| collector(pod)).collect::<Vec<_>>(),
        now,
    );
    fleet
}

#[test]
fn replica_gets_tasks_after_first_answer() {
    let now = Instant::now();
    let mut fleet = table_with(&["a", "b"], now);
    assert!(ready_pods(&fleet).is_empty());
    assert!(fleet.mark_answered("b", true, now));
    assert!(
        !fleet.mark_answered("b", true, now),
        "answering again is no news"
    );
    assert_eq!(ready_pods(&fleet), ["b"]);
    assert!(fleet.ready_replicas(Role::Learner).is_empty());
    fleet.mark_unreachable("b");
    assert!(ready_pods(&fleet).is_empty());
}

#[test]
fn list_adds_new_and_removes_missing_replicas() {
    let now = Instant::now();
    let mut fleet = table_with(&["a", "b"], now);
    fleet.mark_answered("a", true, now);
    let gone = fleet.ready_replicas(Role::Collector)[0].gone.clone();
    let (joined, left) = fleet.sync_listed(&[collector("b"), collector("c")], now);
    assert_eq!((pod_names(&joined), pod_names(&left)), (vec!["c"], vec!["a"]));
    assert!(
        gone.has_changed().is_err(),
        "who waits for a dropped replica must learn of it"
    );
    assert!(
        fleet.unreported_losses().is_empty(),
        "a vanished name is not a failed one"
    );
    let (joined, _) = fleet.sync_listed(&[collector("a")], now);
    assert_eq!(
        pod_names(&joined),
        ["a"],
        "a name that comes back is taken again"
    );
}

#[test]
fn silent_replica_is_lost_after_ten_seconds() {
    let now = Instant::now();
    let mut fleet = table_with(&["a", "b"], now);
    fleet.mark_answered("a", true, now);
    fleet.mark_answered("b", true, now);
    fleet.mark_unreachable("a");
    assert!(fleet.remove_lost(now + 9 * SECOND).is_empty());
    let losses = fleet.remove_lost(now + 10 * SECOND);
    assert_eq!(losses.len(), 1);
    assert_eq!(
        (losses[0].pod.as_str(), losses[0].reason.as_str()),
        ("a", "it has not answered for 10 s")
    );
    assert_eq!(ready_pods(&fleet), ["b"], "the others go on");
}

#[test]
fn unanswering_replica_is_lost_after_two_minutes() {
    let now = Instant::now();
    let mut fleet = table_with(&["a"], now);
    fleet.mark_unreachable("a");
    assert!(fleet.remove_lost(now + 119 * SECOND).is_empty());
    assert_eq!(fleet.remove_lost(now + 120 * SECOND).len(), 1);
}

#[test]
fn paused_replica_gets_no_task_and_is_not_lost() {
    let now = Instant::now();
    let mut fleet = table_with(&["a", "b"], now);
    assert!(fleet.mark_answered("a", true, now) && fleet.mark_answered("b", false, now));
    assert_eq!(ready_pods(&fleet), ["a"]);
    fleet.mark_paused("a");
    assert!(ready_pods(&fleet).is_empty());
    assert!(!fleet.mark_answered("a", false, now), "that is known");
    assert!(fleet.remove_lost(now + 3600 * SECOND).is_empty());
    assert!(fleet.is_settled());
    let later = now + 3600 * SECOND;
    assert!(fleet.mark_answered("b", true, later), "it goes on");
    assert_eq!(ready_pods(&fleet), ["b"]);
    fleet.mark_unreachable("a");
    assert_eq!(fleet.remove_lost(later).len(), 1, "silence is silence");
}

#[test]
fn two_failed_tasks_in_a_row_lose_replica() {
    let now = Instant::now();
    let mut fleet = table_with(&["a"], now);
    fleet.mark_answered("a", true, now);
    fleet.task_failed("a");
    fleet.task_done("a");
    fleet.task_failed("a");
    assert!(fleet.remove_lost(now).is_empty());
    fleet.task_failed("a");
    assert_eq!(fleet.remove_lost(now)[0].reason, "it failed 2 tasks in a row");
}

#[test]
fn lost_replica_is_reported_until_accepted() {
    let now = Instant::now();
    let mut fleet = table_with(&["a"], now);
    fleet.remove_lost(now + 120 * SECOND);
    let told = fleet.unreported_losses();
    assert_eq!(told, [(Role::Collector, "a".to_owned())]);
    assert_eq!(
        fleet.unreported_losses(),
        told,
        "until it is said that it was told"
    );
    fleet.mark_reported(&told);
    assert!(fleet.unreported_losses().is_empty());
    let (joined, _) = fleet.sync_listed(&[collector("a"), collector("successor")], now);
    assert_eq!(pod_names(&joined), ["successor"]);
}

#[test]
fn ready_replicas_are_sorted_by_age() {
    let now = Instant::now();
    let mut fleet = table_with(&["z"], now);
    fleet.sync_listed(&[collector("z"), collector("a")], now + SECOND);
    fleet.mark_answered("a", true, now + SECOND);
    fleet.mark_answered("z", true, now + SECOND);
    assert_eq!(ready_pods(&fleet), ["z", "a"]);
}
