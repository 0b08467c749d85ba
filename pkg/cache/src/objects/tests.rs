use di_fixtures::Pod;
use di_plan::PodPhase;
use serde_json::json;

use super::*;

fn service(name: &str, uid: &str) -> ServiceView {
    ServiceView {
        name: name.into(),
        namespace: "rl".into(),
        uid: uid.into(),
        job: "j".into(),
        owner: None,
        deleting: false,
    }
}

fn key() -> Key {
    ("rl".into(), "j".into())
}

fn names(cache: &ServiceCache) -> Vec<String> {
    cache
        .list_by_job(&key())
        .into_iter()
        .map(|s| s.name)
        .collect()
}

#[test]
fn own_create_is_visible_and_survives_older_list() {
    let cache = ServiceCache::default();
    cache.on_init();
    cache.record_created(service("a", "1"));
    assert_eq!(names(&cache), ["a"]);
    cache.on_init_done();
    assert_eq!(names(&cache), ["a"]);
    cache.on_apply(service("a", "1"));
    cache.on_init();
    cache.on_init_done();
    assert!(names(&cache).is_empty(), "a list removes a watched object");
}

#[test]
fn create_before_list_but_missing_from_it_is_removed() {
    let cache = ServiceCache::default();
    cache.record_created(service("a", "1"));
    cache.record_created(service("b", "2"));
    cache.on_init();
    cache.record_created(service("c", "3"));
    cache.on_init_apply(service("b", "2"));
    let changed_jobs = cache.on_init_done();
    assert_eq!(names(&cache), ["b", "c"]);
    assert!(changed_jobs.contains(&key()), "its job is reported");
}

#[test]
fn create_response_after_deletion_is_ignored() {
    let cache = ServiceCache::default();
    cache.on_apply(service("a", "1"));
    cache.on_delete("1");
    cache.record_created(service("a", "1"));
    assert!(names(&cache).is_empty());
    cache.record_created(service("a", "2"));
    assert_eq!(names(&cache), ["a"]);
}

#[test]
fn objects_missing_from_list_were_deleted() {
    let cache = ServiceCache::default();
    for uid in ["1", "2"] {
        cache.on_apply(service(uid, uid));
    }
    cache.on_init();
    cache.record_created(service("3", "3"));
    cache.on_init_apply(service("1", "1"));
    cache.on_init_apply(service("2", "another"));
    cache.on_init_done();
    let deleted = ["1", "2", "3", "another"].map(|uid| cache.was_deleted(uid));
    assert_eq!(deleted, [false, true, false, false]);
    assert!(!cache.record_created(service("2", "2")));
}

#[test]
fn late_deletion_keeps_recreated_object() {
    let cache = ServiceCache::default();
    cache.record_created(service("a", "2"));
    cache.on_delete("1");
    assert_eq!(names(&cache), ["a"]);
}

#[test]
fn deletion_request_marks_object_by_uid() {
    let cache = ServiceCache::default();
    cache.on_apply(service("a", "2"));
    cache.record_deletion_request(&key(), "a", "1");
    assert!(!cache.list_by_job(&key())[0].deleting);
    cache.record_deletion_request(&key(), "a", "2");
    assert!(cache.list_by_job(&key())[0].deleting);
}

#[test]
fn revision_changes_only_with_objects_of_its_job() {
    let cache = ServiceCache::default();
    let other = ("rl".to_owned(), "other".to_owned());
    let revisions =
        || [key(), other.clone()].map(|job| cache.read_objects(&job, VersionedMap::revision));
    assert_eq!(revisions(), [0, 0]);
    cache.on_apply(service("a", "1"));
    let first = revisions();
    cache.record_deletion_request(&key(), "a", "1");
    let second = revisions();
    assert!(second[0] > first[0] && first[0] > 0 && second[1] == 0);
    cache.on_delete("1");
    assert_eq!(revisions(), [0, 0], "like a job without objects");
    cache.on_apply(service("a", "2"));
    assert!(revisions()[0] > second[0], "but never an old revision");
}

fn pod(name: &str, ip: &str) -> PodView {
    let pod = Pod::test(name, "collector").spec(json!({"nodeName": "n"}));
    let status = json!({"phase": "Running", "podIPs": [{"ip": ip}]});
    PodView::new(&pod.status(status).build()).unwrap()
}

#[test]
fn pod_ip_belongs_to_last_assigned_pod() {
    let cache = PodCache::default();
    let owner_name = |ip: &str| {
        cache
            .find_by_pod_ip(ip.parse().unwrap())
            .map(|pod| pod.name.clone())
    };
    cache.on_apply(pod("a", "10.0.0.1"));
    cache.on_apply(pod("b", "10.0.0.1"));
    cache.on_delete("a-uid");
    assert_eq!(owner_name("10.0.0.1").as_deref(), Some("b"));
    cache.on_apply(pod("b", "10.0.0.2"));
    assert_eq!(owner_name("10.0.0.1"), None);
    cache.record_deletion_request(&key(), "b", "b-uid");
    assert_eq!(owner_name("10.0.0.2").as_deref(), Some("b"));
    cache.on_delete("b-uid");
    assert_eq!(owner_name("10.0.0.2"), None);
}

#[test]
fn deleting_pod_does_not_take_ip_back() {
    let (first, second) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
    let (mut lost, mut later) = (pod("a", "10.0.0.1"), pod("b", "10.0.0.1"));
    (lost.created, later.created) = (first.parse().ok(), second.parse().ok());
    let cache = PodCache::default();
    let owner_name = || {
        let owner = cache.find_by_pod_ip("10.0.0.1".parse().unwrap());
        owner.map(|pod| pod.name.clone())
    };
    cache.on_apply(lost.clone());
    cache.on_apply(later.clone());
    // Its node is lost, then the pod is deleted.
    for deleting in [false, true] {
        (lost.ready, lost.deleting) = (false, deleting);
        cache.on_apply(lost.clone());
        assert_eq!(owner_name().as_deref(), Some("b"));
    }
    cache.on_delete("a-uid");
    assert_eq!(owner_name().as_deref(), Some("b"));
    later.ready = true;
    cache.on_apply(later);
    cache.on_delete("b-uid");
    assert_eq!(owner_name(), None);
}

#[test]
fn newest_listed_pod_owns_shared_ip() {
    let mut later = pod("a", "10.0.0.1");
    later.created = "2026-01-01T00:00:02Z".parse().ok();
    let mut lost = pod("b", "10.0.0.1");
    lost.created = "2026-01-01T00:00:01Z".parse().ok();
    let cache = PodCache::with_objects([later.clone(), lost.clone()]);
    for _ in 0..2 {
        let owner = cache.find_by_pod_ip("10.0.0.1".parse().unwrap());
        assert_eq!(owner.unwrap().name, "a");
        cache.on_init();
        cache.on_init_apply(later.clone());
        cache.on_init_apply(lost.clone());
        cache.on_init_done();
    }
}

#[test]
fn older_pod_owns_newly_assigned_ip() {
    let mut later = pod("a", "10.0.0.1");
    later.created = "2026-01-01T00:00:02Z".parse().ok();
    let mut older = pod("b", "10.0.0.2");
    older.created = "2026-01-01T00:00:01Z".parse().ok();
    let cache = PodCache::default();
    cache.on_apply(later.clone());
    cache.on_apply(older.clone());
    // The node restarted. The kubelet updates the pods one by one; a user labels the first one.
    older.ips = pod("b", "10.0.0.1").ips;
    cache.on_apply(older);
    later.ready = !later.ready;
    cache.on_apply(later);
    cache.on_apply(pod("a", "10.0.0.3"));
    let owner_name = |ip: &str| {
        cache
            .find_by_pod_ip(ip.parse().unwrap())
            .map(|pod| pod.name.clone())
    };
    assert_eq!(owner_name("10.0.0.1").as_deref(), Some("b"));
    assert_eq!(owner_name("10.0.0.3").as_deref(), Some("a"));
}

#[test]
fn pod_without_node_owns_no_ip() {
    let cache = PodCache::default();
    cache.on_apply(pod("a", "10.0.0.1"));
    let claims = |pod_ip: &str| {
        let pod = Pod::test("b", "collector").metadata(json!({"namespace": "other"}));
        let pod = pod.status(json!({"podIPs": [{"ip": pod_ip}]}));
        PodView::new(&pod.build()).unwrap()
    };
    // A user with permission to write pod status in another namespace can claim any pod IP.
    for pod_ip in ["10.0.0.9", "10.0.0.1"] {
        cache.on_apply(claims(pod_ip));
    }
    let owner = |ip: &str| cache.find_by_pod_ip(ip.parse().unwrap());
    assert_eq!(owner("10.0.0.1").unwrap().name, "a");
    assert!(owner("10.0.0.9").is_none());
}

#[test]
fn ended_pod_owns_no_ip() {
    for phase in [PodPhase::Succeeded, PodPhase::Failed] {
        let cache = PodCache::default();
        let pod_ip = "10.0.0.1".parse().unwrap();
        let owner_name = || cache.find_by_pod_ip(pod_ip).map(|pod| pod.name.clone());
        let mut ended = pod("a", "10.0.0.1");
        cache.on_apply(ended.clone());
        assert_eq!(owner_name().as_deref(), Some("a"));
        ended.phase = phase;
        cache.on_apply(ended.clone());
        assert_eq!(owner_name(), None, "{phase:?}");
        cache.on_init();
        cache.on_init_apply(ended.clone());
        cache.on_init_done();
        assert_eq!(owner_name(), None, "{phase:?}");
        cache.on_apply(pod("b", "10.0.0.1"));
        cache.on_apply(ended.clone());
        cache.on_delete(&ended.uid);
        assert_eq!(owner_name().as_deref(), Some("b"), "{phase:?}");
    }
}
