use di_plan::PodPhase;

use super::*;

fn service(name: &str, uid: &str) -> ServiceView {
    ServiceView {
        name: name.into(),
        namespace: "ns".into(),
        uid: uid.into(),
        job: "job".into(),
        owner: None,
        deleting: false,
    }
}

fn key() -> Key {
    ("ns".into(), "job".into())
}

fn names(cache: &ServiceCache) -> Vec<String> {
    cache.of_job(&key()).into_iter().map(|s| s.name).collect()
}

#[test]
fn own_writes_are_seen_at_once_and_survive_an_older_list() {
    let cache = ServiceCache::default();
    cache.list_started();
    cache.created(service("a", "1"));
    assert_eq!(names(&cache), ["a"]);
    cache.list_complete();
    assert_eq!(names(&cache), ["a"]);
    cache.applied(service("a", "1"));
    cache.list_started();
    cache.list_complete();
    assert!(names(&cache).is_empty(), "once seen, a list decides");
}

#[test]
fn what_was_written_before_a_list_began_and_is_missing_from_it_is_gone() {
    let cache = ServiceCache::default();
    cache.created(service("a", "1"));
    cache.created(service("b", "2"));
    cache.list_started();
    cache.created(service("c", "3"));
    cache.list_brought(service("b", "2"));
    let concerned = cache.list_complete();
    assert_eq!(names(&cache), ["b", "c"]);
    assert!(concerned.contains(&key()), "its job is looked at");
}

#[test]
fn an_answer_that_comes_after_the_object_went_changes_nothing() {
    let cache = ServiceCache::default();
    cache.applied(service("a", "1"));
    cache.deleted("1");
    cache.created(service("a", "1"));
    assert!(names(&cache).is_empty());
    cache.created(service("a", "2"));
    assert_eq!(names(&cache), ["a"]);
}

#[test]
fn what_a_list_no_longer_brings_was_seen_going() {
    let cache = ServiceCache::default();
    for uid in ["1", "2"] {
        cache.applied(service(uid, uid));
    }
    cache.list_started();
    cache.created(service("3", "3"));
    cache.list_brought(service("1", "1"));
    cache.list_brought(service("2", "another"));
    cache.list_complete();
    let gone = ["1", "2", "3", "another"].map(|uid| cache.saw_go(uid));
    assert_eq!(gone, [false, true, false, false]);
    assert!(!cache.created(service("2", "2")));
}

#[test]
fn a_late_deletion_leaves_the_next_object_of_that_name() {
    let cache = ServiceCache::default();
    cache.created(service("a", "2"));
    cache.deleted("1");
    assert_eq!(names(&cache), ["a"]);
}

#[test]
fn deletions_asked_for_are_noted_by_uid() {
    let cache = ServiceCache::default();
    cache.applied(service("a", "2"));
    cache.deletion_requested(&key(), "a", "1");
    assert!(!cache.of_job(&key())[0].deleting);
    cache.deletion_requested(&key(), "a", "2");
    assert!(cache.of_job(&key())[0].deleting);
}

#[test]
fn revisions_change_with_the_objects_of_their_job_only() {
    let cache = ServiceCache::default();
    let other = ("ns".to_owned(), "other".to_owned());
    let revisions = || [key(), other.clone()].map(|job| cache.read(&job, Objects::revision));
    assert_eq!(revisions(), [0, 0]);
    cache.applied(service("a", "1"));
    let first = revisions();
    cache.deletion_requested(&key(), "a", "1");
    let second = revisions();
    assert!(second[0] > first[0] && first[0] > 0 && second[1] == 0);
    cache.deleted("1");
    assert_eq!(revisions(), [0, 0], "as if there had been none");
    cache.applied(service("a", "2"));
    assert!(revisions()[0] > second[0], "but never one that was");
}

fn pod(name: &str, ip: &str) -> PodView {
    let pod = serde_json::json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"dijob-name": "job"}},
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running", "podIPs": [{"ip": ip}]},
    });
    PodView::new(&serde_json::from_value(pod).unwrap()).unwrap()
}

#[test]
fn an_address_belongs_to_who_had_it_last() {
    let cache = PodCache::default();
    let of = |ip: &str| {
        cache
            .by_address(ip.parse().unwrap())
            .map(|pod| pod.name.clone())
    };
    cache.applied(pod("a", "10.0.0.1"));
    cache.applied(pod("b", "10.0.0.1"));
    cache.deleted("a");
    assert_eq!(of("10.0.0.1").as_deref(), Some("b"));
    cache.applied(pod("b", "10.0.0.2"));
    assert_eq!(of("10.0.0.1"), None);
    cache.deletion_requested(&key(), "b", "b");
    assert_eq!(of("10.0.0.2").as_deref(), Some("b"));
    cache.deleted("b");
    assert_eq!(of("10.0.0.2"), None);
}

#[test]
fn who_is_about_to_go_takes_no_address_back() {
    let (first, second) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
    let (mut lost, mut later) = (pod("a", "10.0.0.1"), pod("b", "10.0.0.1"));
    (lost.created, later.created) = (first.parse().ok(), second.parse().ok());
    let cache = PodCache::default();
    let of = || {
        let holder = cache.by_address("10.0.0.1".parse().unwrap());
        holder.map(|pod| pod.name.clone())
    };
    cache.applied(lost.clone());
    cache.applied(later.clone());
    // Its node is lost, and it is told to go.
    for deleting in [false, true] {
        (lost.ready, lost.deleting) = (false, deleting);
        cache.applied(lost.clone());
        assert_eq!(of().as_deref(), Some("b"));
    }
    cache.deleted("a");
    assert_eq!(of().as_deref(), Some("b"));
    later.ready = true;
    cache.applied(later);
    cache.deleted("b");
    assert_eq!(of(), None);
}

#[test]
fn of_those_that_are_listed_the_last_made_has_the_address() {
    let mut later = pod("a", "10.0.0.1");
    later.created = "2026-01-01T00:00:02Z".parse().ok();
    let mut lost = pod("b", "10.0.0.1");
    lost.created = "2026-01-01T00:00:01Z".parse().ok();
    let cache = PodCache::holding([later.clone(), lost.clone()]);
    for _ in 0..2 {
        let holder = cache.by_address("10.0.0.1".parse().unwrap());
        assert_eq!(holder.unwrap().name, "a");
        cache.list_started();
        cache.list_brought(later.clone());
        cache.list_brought(lost.clone());
        cache.list_complete();
    }
}

#[test]
fn who_comes_to_an_address_has_it_however_old() {
    let mut later = pod("a", "10.0.0.1");
    later.created = "2026-01-01T00:00:02Z".parse().ok();
    let mut older = pod("b", "10.0.0.2");
    older.created = "2026-01-01T00:00:01Z".parse().ok();
    let cache = PodCache::default();
    cache.applied(later.clone());
    cache.applied(older.clone());
    // Their node was started anew, of which the kubelet tells one after the other; somebody labels the first meanwhile.
    older.ips = pod("b", "10.0.0.1").ips;
    cache.applied(older);
    later.ready = !later.ready;
    cache.applied(later);
    cache.applied(pod("a", "10.0.0.3"));
    let of = |ip: &str| {
        cache
            .by_address(ip.parse().unwrap())
            .map(|pod| pod.name.clone())
    };
    assert_eq!(of("10.0.0.1").as_deref(), Some("b"));
    assert_eq!(of("10.0.0.3").as_deref(), Some("a"));
}

#[test]
fn who_has_no_node_comes_to_no_address() {
    let cache = PodCache::default();
    cache.applied(pod("a", "10.0.0.1"));
    let claims = |address: &str| {
        let pod = serde_json::json!({
            "metadata": {"name": "b", "namespace": "other", "uid": "b", "labels": {"dijob-name": "job"}},
            "spec": {"containers": []},
            "status": {"phase": "Pending", "podIPs": [{"ip": address}]},
        });
        PodView::new(&serde_json::from_value(pod).unwrap()).unwrap()
    };
    // Whoever may write its status in another namespace has it come to the address.
    for address in ["10.0.0.9", "10.0.0.1"] {
        cache.applied(claims(address));
    }
    let holder = |ip: &str| cache.by_address(ip.parse().unwrap());
    assert_eq!(holder("10.0.0.1").unwrap().name, "a");
    assert!(holder("10.0.0.9").is_none());
}

#[test]
fn the_address_of_a_pod_that_has_ended_leads_to_nobody() {
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        let cache = PodCache::default();
        let address = "10.0.0.1".parse().unwrap();
        let of = || cache.by_address(address).map(|pod| pod.name.clone());
        let mut ended = pod("a", "10.0.0.1");
        cache.applied(ended.clone());
        assert_eq!(of().as_deref(), Some("a"));
        ended.phase = phase;
        cache.applied(ended.clone());
        assert_eq!(of(), None, "{phase:?}");
        cache.list_started();
        cache.list_brought(ended.clone());
        cache.list_complete();
        assert_eq!(of(), None, "{phase:?}");
        cache.applied(pod("b", "10.0.0.1"));
        cache.applied(ended.clone());
        cache.deleted(&ended.uid);
        assert_eq!(of().as_deref(), Some("b"), "{phase:?}");
    }
}
