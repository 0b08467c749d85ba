use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn collector(pod: &str) -> (Role, Address) {
    (
        Role::Collector,
        Address::parse(&format!("{pod}.rl:1")).unwrap(),
    )
}

fn names(addresses: &[Address]) -> Vec<&str> {
    addresses
        .iter()
        .map(|address| address.pod.as_str())
        .collect()
}

fn ready(fleet: &Fleet) -> Vec<String> {
    fleet
        .ready(Role::Collector)
        .into_iter()
        .map(|ready| ready.address.pod)
        .collect()
}

fn fleet_of(pods: &[&str], now: Instant) -> Fleet {
    let mut fleet = Fleet::new(Patience::default());
    fleet.sync(
        &pods.iter().map(|pod| collector(pod)).collect::<Vec<_>>(),
        now,
    );
    fleet
}

#[test]
fn a_replica_gets_work_once_it_answered() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["a", "b"], now);
    assert!(ready(&fleet).is_empty());
    assert!(fleet.answered("b", true, now));
    assert!(
        !fleet.answered("b", true, now),
        "answering again is no news"
    );
    assert_eq!(ready(&fleet), ["b"]);
    assert!(fleet.ready(Role::Learner).is_empty());
    fleet.silent("b");
    assert!(ready(&fleet).is_empty());
}

#[test]
fn the_list_adds_new_names_and_drops_vanished_ones() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["a", "b"], now);
    fleet.answered("a", true, now);
    let gone = fleet.ready(Role::Collector)[0].gone.clone();
    let (joined, left) = fleet.sync(&[collector("b"), collector("c")], now);
    assert_eq!((names(&joined), names(&left)), (vec!["c"], vec!["a"]));
    assert!(
        gone.has_changed().is_err(),
        "who waits for a dropped replica must learn of it"
    );
    assert!(
        fleet.unreported().is_empty(),
        "a vanished name is not a failed one"
    );
    let (joined, _) = fleet.sync(&[collector("a")], now);
    assert_eq!(
        names(&joined),
        ["a"],
        "a name that comes back is taken again"
    );
}

#[test]
fn silence_after_an_answer_is_a_loss_after_ten_seconds() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["a", "b"], now);
    fleet.answered("a", true, now);
    fleet.answered("b", true, now);
    fleet.silent("a");
    assert!(fleet.expire(now + 9 * SECOND).is_empty());
    let losses = fleet.expire(now + 10 * SECOND);
    assert_eq!(losses.len(), 1);
    assert_eq!(
        (losses[0].pod.as_str(), losses[0].reason.as_str()),
        ("a", "it has not answered for 10 s")
    );
    assert_eq!(ready(&fleet), ["b"], "the others go on");
}

#[test]
fn a_replica_that_never_answered_gets_two_minutes() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["a"], now);
    fleet.silent("a");
    assert!(fleet.expire(now + 119 * SECOND).is_empty());
    assert_eq!(fleet.expire(now + 120 * SECOND).len(), 1);
}

#[test]
fn a_paused_replica_gets_no_work_and_is_not_lost() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["a", "b"], now);
    assert!(fleet.answered("a", true, now) && fleet.answered("b", false, now));
    assert_eq!(ready(&fleet), ["a"]);
    fleet.paused("a");
    assert!(ready(&fleet).is_empty());
    assert!(!fleet.answered("a", false, now), "that is known");
    assert!(fleet.expire(now + 3600 * SECOND).is_empty());
    assert!(fleet.is_settled());
    let later = now + 3600 * SECOND;
    assert!(fleet.answered("b", true, later), "it goes on");
    assert_eq!(ready(&fleet), ["b"]);
    fleet.silent("a");
    assert_eq!(fleet.expire(later).len(), 1, "silence is silence");
}

#[test]
fn two_failed_tasks_in_a_row_are_a_loss() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["a"], now);
    fleet.answered("a", true, now);
    fleet.task_failed("a");
    fleet.task_done("a");
    fleet.task_failed("a");
    assert!(fleet.expire(now).is_empty());
    fleet.task_failed("a");
    assert_eq!(fleet.expire(now)[0].reason, "it failed 2 tasks in a row");
}

#[test]
fn a_lost_name_is_reported_until_that_succeeds_and_never_used_again() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["a"], now);
    fleet.expire(now + 120 * SECOND);
    let told = fleet.unreported();
    assert_eq!(told, [(Role::Collector, "a".to_owned())]);
    assert_eq!(
        fleet.unreported(),
        told,
        "until it is said that it was told"
    );
    fleet.reported(&told);
    assert!(fleet.unreported().is_empty());
    let (joined, _) = fleet.sync(&[collector("a"), collector("successor")], now);
    assert_eq!(names(&joined), ["successor"]);
}

#[test]
fn the_longest_there_is_first() {
    let now = Instant::now();
    let mut fleet = fleet_of(&["z"], now);
    fleet.sync(&[collector("z"), collector("a")], now + SECOND);
    fleet.answered("a", true, now + SECOND);
    fleet.answered("z", true, now + SECOND);
    assert_eq!(ready(&fleet), ["z", "a"]);
}
