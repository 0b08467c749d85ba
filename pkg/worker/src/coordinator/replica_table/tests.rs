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

fn ready_pods(table: &ReplicaTable) -> Vec<String> {
    table
        .ready_replicas(Role::Collector)
        .into_iter()
        .map(|ready| ready.address.pod)
        .collect()
}

fn table_with(pods: &[&str], now: Instant) -> ReplicaTable {
    let mut table = ReplicaTable::new(ReplicaTimeouts::default());
    table.sync_listed(
        &pods.iter().map(|pod| collector(pod)).collect::<Vec<_>>(),
        now,
    );
    table
}

#[test]
fn replica_gets_tasks_after_first_answer() {
    let now = Instant::now();
    let mut table = table_with(&["a", "b"], now);
    assert!(ready_pods(&table).is_empty());
    assert!(table.mark_answered("b", true, now));
    assert!(
        !table.mark_answered("b", true, now),
        "a second answer changes nothing"
    );
    assert_eq!(ready_pods(&table), ["b"]);
    assert!(table.ready_replicas(Role::Learner).is_empty());
    table.mark_unreachable("b");
    assert!(ready_pods(&table).is_empty());
}

#[test]
fn list_adds_new_and_removes_missing_replicas() {
    let now = Instant::now();
    let mut table = table_with(&["a", "b"], now);
    table.mark_answered("a", true, now);
    let gone = table.ready_replicas(Role::Collector)[0].gone.clone();
    let (joined, left) = table.sync_listed(&[collector("b"), collector("c")], now);
    assert_eq!(
        (pod_names(&joined), pod_names(&left)),
        (vec!["c"], vec!["a"])
    );
    assert!(
        gone.has_changed().is_err(),
        "requests to a removed replica are cancelled"
    );
    assert!(
        table.unreported_losses().is_empty(),
        "a removed replica is not a failed one"
    );
    let (joined, _) = table.sync_listed(&[collector("a")], now);
    assert_eq!(
        pod_names(&joined),
        ["a"],
        "a name that is listed again is added again"
    );
}

#[test]
fn silent_replica_is_lost_after_ten_seconds() {
    let now = Instant::now();
    let mut table = table_with(&["a", "b"], now);
    table.mark_answered("a", true, now);
    table.mark_answered("b", true, now);
    table.mark_unreachable("a");
    assert!(table.remove_lost(now + 9 * SECOND).is_empty());
    let losses = table.remove_lost(now + 10 * SECOND);
    assert_eq!(losses.len(), 1);
    assert_eq!(
        (losses[0].pod.as_str(), losses[0].reason.as_str()),
        ("a", "it has not answered for 10 s")
    );
    assert_eq!(ready_pods(&table), ["b"], "the others stay");
}

#[test]
fn unanswering_replica_is_lost_after_two_minutes() {
    let now = Instant::now();
    let mut table = table_with(&["a"], now);
    table.mark_unreachable("a");
    assert!(table.remove_lost(now + 119 * SECOND).is_empty());
    assert_eq!(table.remove_lost(now + 120 * SECOND).len(), 1);
}

#[test]
fn paused_replica_gets_no_task_and_is_not_lost() {
    let now = Instant::now();
    let mut table = table_with(&["a", "b"], now);
    assert!(table.mark_answered("a", true, now) && table.mark_answered("b", false, now));
    assert_eq!(ready_pods(&table), ["a"]);
    table.mark_paused("a");
    assert!(ready_pods(&table).is_empty());
    assert!(!table.mark_answered("a", false, now), "nothing changed");
    assert!(table.remove_lost(now + 3600 * SECOND).is_empty());
    let later = now + 3600 * SECOND;
    assert!(table.mark_answered("b", true, later), "it runs again");
    assert_eq!(ready_pods(&table), ["b"]);
    table.mark_unreachable("a");
    assert_eq!(table.remove_lost(later).len(), 1, "silence is silence");
}

#[test]
fn two_failed_tasks_in_a_row_lose_replica() {
    let now = Instant::now();
    let mut table = table_with(&["a"], now);
    table.mark_answered("a", true, now);
    table.task_failed("a");
    table.task_done("a");
    table.task_failed("a");
    assert!(table.remove_lost(now).is_empty());
    table.task_failed("a");
    assert_eq!(
        table.remove_lost(now)[0].reason,
        "it failed 2 tasks in a row"
    );
}

#[test]
fn lost_replica_is_reported_until_accepted() {
    let now = Instant::now();
    let mut table = table_with(&["a"], now);
    table.remove_lost(now + 120 * SECOND);
    let lost = table.unreported_losses();
    assert_eq!(lost, [(Role::Collector, "a".to_owned())]);
    assert_eq!(
        table.unreported_losses(),
        lost,
        "until the report is accepted"
    );
    table.mark_reported(&lost);
    assert!(table.unreported_losses().is_empty());
    let (joined, _) = table.sync_listed(&[collector("a"), collector("successor")], now);
    assert_eq!(pod_names(&joined), ["successor"]);
}

#[test]
fn ready_replicas_are_sorted_by_age() {
    let now = Instant::now();
    let mut table = table_with(&["z"], now);
    table.sync_listed(&[collector("z"), collector("a")], now + SECOND);
    table.mark_answered("a", true, now + SECOND);
    table.mark_answered("z", true, now + SECOND);
    assert_eq!(ready_pods(&table), ["z", "a"]);
}
