use std::collections::{HashMap, HashSet};

use di_api::{PlanEntry, Role, names};
use jiff::{SignedDuration, Timestamp};

use crate::{
    job::Job,
    ops::{aggregator_of, group_members},
    ports::port_of_entry,
    view::PodView,
};

/// A watch shows a created pod within this time: a dead watch connection is replaced after a
/// minute.
const WATCH_TIMEOUT: SignedDuration = SignedDuration::from_secs(90);

/// The reconciler tries to create a planned pod within this time.
const CREATE_TIMEOUT: SignedDuration = SignedDuration::from_secs(2);

/// URLs of the replicas that a coordinator can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// URLs of collectors.
    pub collectors: Vec<String>,
    /// URLs of learners; of the aggregator for a learner group.
    pub learners: Vec<String>,
}

/// Lists the URLs of the replicas of a job.
///
/// Left out are replicas that the plan does not want, that have succeeded, that are being deleted
/// or that cannot start. An aggregator is left out if one of its ddp learners is. A failed replica
/// and its replacement swap in one step, with the plan. See docs/decisions/0012.
///
/// `pod` finds a pod by name, `was_deleted` says whether the watch showed the deletion of a UID. A
/// replica without a visible pod is listed, unless the API server rejects the pods of the job.
/// For `scheduling_wait` after planning, an unscheduled replica is left out: a client would block on
/// a replica that does not fit.
pub fn list_replicas<'a>(
    job: &impl Job,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    was_deleted: impl Fn(&str) -> bool,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> Listing {
    let plan = job.plan_entries();
    let aggregators: HashMap<&str, &PlanEntry> = plan
        .iter()
        .filter(|entry| entry.role == Role::Aggregator)
        .map(|entry| (&*entry.name, entry))
        .collect();
    let port_if_listed = |entry: &PlanEntry| {
        // Ddp learners are planned after their aggregator; the wait counts for the whole group.
        let aggregator = aggregator_of(entry).and_then(|name| aggregators.get(name).copied());
        let planned = aggregator.unwrap_or(entry);
        listable_port(job, entry, &pod, &was_deleted, now, scheduling_wait)
            .filter(|_| !is_unscheduled(planned, pod(&entry.name), now, scheduling_wait))
    };
    let incomplete: HashSet<&str> = plan
        .iter()
        .filter(|entry| entry.is_wanted() && port_if_listed(entry).is_none())
        .filter_map(aggregator_of)
        .collect();
    let url = |entry: &PlanEntry| {
        let port = port_if_listed(entry).filter(|_| !incomplete.contains(&*entry.name))?;
        Some(replica_url(job, entry, port))
    };
    let with_role = |role: Role| plan.iter().filter(move |entry| entry.role == role);
    Listing {
        collectors: with_role(Role::Collector).filter_map(url).collect(),
        learners: with_role(Role::Learner)
            .chain(with_role(Role::Aggregator))
            .filter_map(url)
            .collect(),
    }
}

/// Lists the URLs of the processes of a learner group, ordered by rank.
///
/// Leaves out the same replicas as [`list_replicas`].
pub fn list_processes<'a>(
    job: &impl Job,
    aggregator: &str,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    was_deleted: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Vec<String> {
    let port = |entry| listable_port(job, entry, &pod, &was_deleted, now, SignedDuration::ZERO);
    let mut members: Vec<_> = group_members(job.plan_entries(), aggregator)
        .filter_map(|entry| Some((port(entry)?, entry)))
        .collect();
    members.sort_by_key(|(port, _)| *port);
    members
        .into_iter()
        .flat_map(|(port, entry)| {
            (0..entry.gpu_count()).map(move |i| replica_url(job, entry, port + i))
        })
        .collect()
}

/// The next time at which a listing changes without an event.
///
/// That is when a delayed replica may be created, a scheduling wait ends, or a pod was not visible
/// for too long.
pub fn next_change(
    job: &impl Job,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> Option<Timestamp> {
    let times = job.plan_entries().iter().flat_map(|entry| {
        let planned = entry.planned_at.as_ref().map(|time| time.0);
        let start = entry.not_before.as_ref().map(|time| time.0);
        let visible = entry.earliest_creation().filter(|_| entry.uid.is_some());
        let after = |time: Option<Timestamp>, wait: SignedDuration| time?.checked_add(wait).ok();
        [
            start,
            after(planned, scheduling_wait),
            after(planned, CREATE_TIMEOUT),
            after(visible, WATCH_TIMEOUT),
        ]
    });
    times.flatten().filter(|time| *time > now).min()
}

/// Whether a new replica is still in the scheduling wait and has no node.
///
/// Replacements do not wait: the lost replicas leave the list together with the swap.
fn is_unscheduled(
    entry: &PlanEntry,
    pod: Option<&PodView>,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> bool {
    let is_scheduled = pod.is_some_and(|pod| pod.scheduled == Ok(true));
    !is_scheduled && was_planned_within(scheduling_wait, entry, now) && entry.replaces.is_none()
}

/// Whether the replica was planned less than `wait` ago.
fn was_planned_within(wait: SignedDuration, entry: &PlanEntry, now: Timestamp) -> bool {
    let planned = entry.planned_at.as_ref().map(|time| time.0);
    planned.is_some_and(|planned| now.duration_since(planned) < wait)
}

/// Whether the pod was created and no longer exists.
///
/// The plan may be ahead of the watch of pods, so a new pod may not be visible.
fn is_pod_deleted(entry: &PlanEntry, was_deleted: impl Fn(&str) -> bool, now: Timestamp) -> bool {
    let may_be_invisible = entry
        .earliest_creation()
        .is_some_and(|from| now.duration_since(from) < WATCH_TIMEOUT);
    let uid = entry.uid.as_deref();
    uid.is_some_and(|uid| was_deleted(uid) || !may_be_invisible)
}

fn replica_url(job: &impl Job, entry: &PlanEntry, port: i32) -> String {
    names::replica_url(&entry.name, job.job_key().0, port)
}

/// The port of a replica if it can be listed.
fn listable_port<'a>(
    job: &impl Job,
    entry: &PlanEntry,
    pod: &impl Fn(&str) -> Option<&'a PodView>,
    was_deleted: &impl Fn(&str) -> bool,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> Option<i32> {
    if !entry.is_wanted() || entry.done {
        return None;
    }
    if let Some(pod) = pod(&entry.name) {
        // A failed pod stays listed until the plan swaps it. DI-engine's sync thread can end when
        // a replica disappears, and must know the replacement then. See docs/decisions/0012.
        let is_listable = !pod.has_completed() && !pod.deleting && pod.stuck_reason().is_none();
        return is_listable.then_some(pod.port);
    }
    // A pod that is not visible may be delayed, deleted or rejected by the API server. An entry
    // with a UID had a pod. See docs/decisions/0004.
    let wait = scheduling_wait.max(CREATE_TIMEOUT);
    let is_expected = entry.uid.is_some() || was_planned_within(wait, entry, now);
    let is_rejected = job.rejection_message().is_some() && !is_expected;
    let is_deleted = is_pod_deleted(entry, was_deleted, now);
    if is_rejected || is_deleted || entry.not_before.as_ref().is_some_and(|time| time.0 > now) {
        return None;
    }
    // The port of an aggregator is unknown until its AggregatorConfig is known.
    if entry.role == Role::Aggregator && entry.port.is_none() {
        return None;
    }
    Some(port_of_entry(job, entry))
}

#[cfg(test)]
mod tests {
    use di_api::{DIJob, Reason};
    use di_fixtures::{Job, Pod};
    use serde_json::json;

    use super::*;
    use crate::view::{End, PodPhase};

    const WAIT: SignedDuration = SignedDuration::from_secs(2);

    fn collector_entry(name: &str, replaces: Option<&str>) -> serde_json::Value {
        json!({
            "name": name, "type": "Collector", "origin": "Requested", "index": 0,
            "plannedAt": "2026-01-01T00:00:00Z", "replaces": replaces,
        })
    }

    fn collector_pod(name: &str, conditions: &serde_json::Value) -> PodView {
        let pod = Pod::test(name, "collector").status(json!({"conditions": conditions}));
        PodView::new(&pod.build()).unwrap()
    }

    fn job_with_plan(plan: &[serde_json::Value]) -> Job {
        let job = Job::test().collectors(0).learners(0);
        job.status(json!({"plan": plan}))
    }

    fn list_collectors(plan: &[serde_json::Value], pods: &[PodView], at: &str) -> Vec<String> {
        let job: DIJob = job_with_plan(plan).build();
        let pod = |name: &str| pods.iter().find(|pod| pod.name == name);
        list_replicas(&job, pod, |_| false, at.parse().unwrap(), WAIT).collectors
    }

    #[test]
    fn new_replica_is_listed_with_node_or_after_wait() {
        let plan = [collector_entry("new", None)];
        let (soon, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
        let scheduled_pod = |status: &str| {
            collector_pod("new", &json!([{"type": "PodScheduled", "status": status}]))
        };
        let url = ["new.rl:22270"];
        assert!(list_collectors(&plan, &[], soon).is_empty());
        assert!(list_collectors(&plan, &[collector_pod("new", &json!([]))], soon).is_empty());
        assert_eq!(list_collectors(&plan, &[scheduled_pod("True")], soon), url);
        assert!(list_collectors(&plan, &[scheduled_pod("False")], soon).is_empty());
        assert_eq!(list_collectors(&plan, &[], late), url);
        assert_eq!(
            list_collectors(&plan, &[collector_pod("new", &json!([]))], late),
            url
        );
        assert!(list_collectors(&plan, &[scheduled_pod("False")], late).is_empty());
    }

    #[test]
    fn stuck_replica_is_not_listed() {
        let plan = [collector_entry("new", None)];
        let waiting = |reason: &str| {
            let mut pod =
                collector_pod("new", &json!([{"type": "PodScheduled", "status": "True"}]));
            pod.waiting = Some(Box::new((reason.to_owned(), String::new())));
            list_collectors(&plan, &[pod], "2026-01-01T00:00:09Z")
        };
        // The reasons in the contract of the client.
        for reason in [
            "ErrImagePull",
            "ImagePullBackOff",
            "CrashLoopBackOff",
            "CreateContainerConfigError",
            "InvalidImageName",
        ] {
            assert!(
                Reason::find_in(&Reason::STUCK_CONTAINER, reason).is_some(),
                "{reason}"
            );
        }
        for reason in Reason::STUCK_CONTAINER {
            assert!(waiting(reason.as_str()).is_empty(), "{reason}");
        }
        for reason in ["ContainerCreating", "PodInitializing"] {
            assert_eq!(waiting(reason), ["new.rl:22270"], "{reason}");
        }
    }

    #[test]
    fn failed_replica_and_replacement_swap_in_one_step() {
        let mut lost = collector_entry("lost", None);
        let ended = |phase: &str| {
            let mut pod =
                collector_pod("lost", &json!([{"type": "PodScheduled", "status": "True"}]));
            pod.phase = if phase == "Failed" {
                PodPhase::Failed
            } else {
                PodPhase::Succeeded
            };
            pod.end = Some(Box::new(End {
                exit_code: Some((phase == "Failed").into()),
                reason: String::new(),
                message: None,
                at: None,
                log_tail: None,
            }));
            pod
        };
        let at = "2026-01-01T00:00:00Z";
        assert_eq!(
            list_collectors(&[lost.clone()], &[ended("Failed")], at),
            ["lost.rl:22270"]
        );
        let mut evicted = ended("Succeeded");
        evicted.disrupted = true;
        assert_eq!(
            list_collectors(&[lost.clone()], &[evicted], at),
            ["lost.rl:22270"]
        );
        assert!(list_collectors(&[lost.clone()], &[ended("Succeeded")], at).is_empty());
        lost["state"] = json!("Replaced");
        let plan = [lost, collector_entry("fresh", Some("lost"))];
        assert_eq!(
            list_collectors(&plan, &[ended("Failed")], at),
            ["fresh.rl:22270"]
        );
    }

    #[test]
    fn replica_with_rejected_pod_is_not_listed() {
        let (soon, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z");
        for (reason, at, wait, listed) in [
            ("QuotaExceeded", late, WAIT, 1),
            ("QuotaExceeded", late, SignedDuration::ZERO, 1),
            // The rejected pod may be another one.
            ("QuotaExceeded", soon, SignedDuration::ZERO, 2),
            ("ApiError", late, WAIT, 2),
        ] {
            let at: Timestamp = at.parse().unwrap();
            let plan = ["there", "rejected"].map(|name| collector_entry(name, None));
            let conditions = json!([{
                "type": "ReplicasReady", "status": "False", "reason": reason, "message": "quota exceeded",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
            let job = job_with_plan(&plan).status(json!({"conditions": conditions}));
            let job: DIJob = job.build();
            let there = collector_pod(
                "there",
                &json!([{"type": "PodScheduled", "status": "True"}]),
            );
            let pod = |name: &str| (name == "there").then_some(&there);
            let collectors = list_replicas(&job, pod, |_| false, at, wait).collectors;
            assert_eq!(collectors.len(), listed, "{reason}, {at}: {collectors:?}");
        }
    }

    #[test]
    fn listed_group_stays_listed_with_late_ddp_learners() {
        let ddp = json!({
            "name": "d", "type": "DDPLearner", "origin": "Requested", "index": 0, "plannedAt": "2026-01-01T00:00:05Z",
            "resources": {"gpus": "2"}, "ddp": {"aggregator": "a", "worldSize": 2, "startRank": 0},
        });
        let aggregator = json!({
            "name": "a", "type": "Aggregator", "origin": "Requested", "index": 0, "plannedAt": "2026-01-01T00:00:00Z",
            "port": 5000, "resources": {"gpus": "2"},
        });
        let job: DIJob = job_with_plan(&[aggregator, ddp]).build();
        let at = "2026-01-01T00:00:06Z".parse().unwrap();
        let learners = list_replicas(&job, |_| None, |_| false, at, WAIT).learners;
        assert_eq!(learners, ["a.rl:5000"]);
    }

    #[test]
    fn created_replica_is_listed_until_deleted() {
        let mut created = collector_entry("created", None);
        created["uid"] = json!("u");
        let mut late = collector_entry("late", Some("lost"));
        late["uid"] = json!("late");
        late["notBefore"] = json!("2026-01-01T00:05:00Z");
        let job: DIJob = job_with_plan(&[created, late]).build();
        let listed = |at: &str, is_deleted: bool| {
            let at: Timestamp = at.parse().unwrap();
            list_replicas(&job, |_| None, |uid| is_deleted && uid == "u", at, WAIT).collectors
        };
        let (soon, never) = ("2026-01-01T00:00:09Z", "2026-01-01T00:01:30Z");
        assert_eq!(listed(soon, false), ["created.rl:22270"]);
        assert!(listed(soon, true).is_empty());
        assert!(listed(never, false).is_empty());
        assert_eq!(listed("2026-01-01T00:05:09Z", false), ["late.rl:22270"]);
    }

    #[test]
    fn next_change_is_end_of_next_wait() {
        let mut created = collector_entry("created", None);
        created["uid"] = json!("u");
        created["notBefore"] = json!("2026-01-01T00:00:10Z");
        let job: DIJob = job_with_plan(&[created]).build();
        let mut at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for seconds in [2, 10, 100] {
            let next = next_change(&job, at, WAIT).unwrap();
            assert_eq!(
                next.to_string(),
                format!("2026-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60)
            );
            at = next;
        }
        assert_eq!(next_change(&job, at, WAIT), None);
    }

    #[test]
    fn replacement_is_listed_immediately() {
        let plan = [collector_entry("fresh", Some("lost"))];
        assert_eq!(
            list_collectors(&plan, &[], "2026-01-01T00:00:00Z"),
            ["fresh.rl:22270"]
        );
    }
}
