use std::collections::{HashMap, HashSet};

use di_api::{PlanEntry, Role, names};
use jiff::{SignedDuration, Timestamp};

use crate::{
    Job,
    ops::{aggregator_of, members},
    ports::port_of,
    view::PodView,
};

/// A watch whose connection is dead is begun anew after a minute: by then it has shown what was made.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_secs(90);

/// Whoever makes pods has tried by then.
const TRIED_WITHIN: SignedDuration = SignedDuration::from_secs(2);

/// The replicas that a coordinator may use now, as URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Collectors.
    pub collectors: Vec<String>,
    /// Learners, and aggregators for learners of several GPUs.
    pub learners: Vec<String>,
}

/// Lists a job's replicas: those that the plan wants, but for those that have done their work, are being deleted, or that Kubernetes says cannot start.
/// An aggregator is as good as its worst ddp learner. One that failed and its replacement swap in one step, which is the plan's.
///
/// `pod` looks a pod up by name, and `saw_go` tells of a UID whether its pod was seen going. A replica whose pod nobody has seen yet is listed: it
/// is on its way, unless the API server refuses the job's pods. But for so long as `verdict_wait` after it
/// was planned it is listed only once it has a node: a client that is told of a replica without room waits for that alone.
pub fn listing<'a>(
    job: &impl Job,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    saw_go: impl Fn(&str) -> bool,
    now: Timestamp,
    verdict_wait: SignedDuration,
) -> Listing {
    let plan = job.plan();
    let leads = |entry: &&PlanEntry| entry.role == Role::Aggregator;
    let leaders: HashMap<&str, &PlanEntry> = plan
        .iter()
        .filter(leads)
        .map(|entry| (&*entry.name, entry))
        .collect();
    let usable = |entry: &PlanEntry| {
        // Ddp learners are planned after their aggregator, and what waits is the unit.
        let leader = aggregator_of(entry).and_then(|name| leaders.get(name).copied());
        let unit = leader.unwrap_or(entry);
        usable(job, entry, &pod, &saw_go, now, verdict_wait)
            .filter(|_| !awaits_verdict(unit, pod(&entry.name), now, verdict_wait))
    };
    let broken: HashSet<&str> = plan
        .iter()
        .filter(|entry| entry.is_wanted() && usable(entry).is_none())
        .filter_map(aggregator_of)
        .collect();
    let url = |entry: &PlanEntry| {
        let port = usable(entry).filter(|_| !broken.contains(&*entry.name))?;
        Some(url(job, entry, port))
    };
    let of = |role: Role| plan.iter().filter(move |entry| entry.role == role);
    Listing {
        collectors: of(Role::Collector).filter_map(url).collect(),
        learners: of(Role::Learner)
            .chain(of(Role::Aggregator))
            .filter_map(url)
            .collect(),
    }
}

/// Lists the processes of an aggregator's ddp learners, as URLs in the order of their ranks; the same are left out as in [`listing`].
pub fn processes<'a>(
    job: &impl Job,
    aggregator: &str,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    saw_go: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Vec<String> {
    let port = |entry| usable(job, entry, &pod, &saw_go, now, SignedDuration::ZERO);
    let mut all: Vec<_> = members(job.plan(), aggregator)
        .filter_map(|entry| Some((port(entry)?, entry)))
        .collect();
    all.sort_by_key(|(port, _)| *port);
    all.into_iter()
        .flat_map(|(port, entry)| (0..entry.gpus()).map(move |i| url(job, entry, port + i)))
        .collect()
}

/// When a list changes by itself: when the next replica may be made, has waited for its verdict long enough, or was not shown for too long.
pub fn next_change(
    job: &impl Job,
    now: Timestamp,
    verdict_wait: SignedDuration,
) -> Option<Timestamp> {
    let times = job.plan().iter().flat_map(|entry| {
        let planned = entry.planned_at.as_ref().map(|time| time.0);
        let start = entry.not_before.as_ref().map(|time| time.0);
        let shown = entry.may_be_made_from().filter(|_| entry.uid.is_some());
        let after = |time: Option<Timestamp>, wait: SignedDuration| time?.checked_add(wait).ok();
        [
            start,
            after(planned, verdict_wait),
            after(planned, TRIED_WITHIN),
            after(shown, SHOWN_WITHIN),
        ]
    });
    times.flatten().filter(|time| *time > now).min()
}

/// Whether Kubernetes may yet say that there is no room for a pod of this replica. Replacements do not wait: with them the lost ones leave the list.
fn awaits_verdict(
    entry: &PlanEntry,
    pod: Option<&PodView>,
    now: Timestamp,
    verdict_wait: SignedDuration,
) -> bool {
    let placed = pod.is_some_and(|pod| pod.scheduled == Ok(true));
    !placed && is_young(entry, now, verdict_wait) && entry.replaces.is_none()
}

/// Whether it was planned so lately that nobody may have tried to make its pod.
fn is_young(entry: &PlanEntry, now: Timestamp, verdict_wait: SignedDuration) -> bool {
    let planned = entry.planned_at.as_ref().map(|time| time.0);
    planned.is_some_and(|planned| now.duration_since(planned) < verdict_wait)
}

/// Whether its pod was made and is gone. Who tells of it may be ahead of the watch that shows it.
fn is_gone(entry: &PlanEntry, saw_go: impl Fn(&str) -> bool, now: Timestamp) -> bool {
    let may_be_unseen = entry
        .may_be_made_from()
        .is_some_and(|from| now.duration_since(from) < SHOWN_WITHIN);
    let uid = entry.uid.as_deref();
    uid.is_some_and(|uid| saw_go(uid) || !may_be_unseen)
}

fn url(job: &impl Job, entry: &PlanEntry, port: i32) -> String {
    names::url(&entry.name, job.key().0, port)
}

/// The port of a replica that may be used.
fn usable<'a>(
    job: &impl Job,
    entry: &PlanEntry,
    pod: &impl Fn(&str) -> Option<&'a PodView>,
    saw_go: &impl Fn(&str) -> bool,
    now: Timestamp,
    verdict_wait: SignedDuration,
) -> Option<i32> {
    if !entry.is_wanted() || entry.done {
        return None;
    }
    if let Some(pod) = pod(&entry.name) {
        // One that was lost stays until the plan swaps it: its client's sync thread may end at its going, and has to know the replacement by then.
        let usable = !pod.has_done_its_work() && !pod.deleting && pod.stuck().is_none();
        return usable.then_some(pod.port);
    }
    // Not to be made yet, or made and gone since, or refused.
    let tried_within = verdict_wait.max(TRIED_WITHIN);
    let awaited = entry.uid.is_some() || is_young(entry, now, tried_within);
    let refused = job.refused().is_some() && !awaited;
    let gone = is_gone(entry, saw_go, now);
    if refused || gone || entry.not_before.as_ref().is_some_and(|time| time.0 > now) {
        return None;
    }
    // Where an aggregator will listen is not known before its configuration is.
    if entry.role == Role::Aggregator && entry.port.is_none() {
        return None;
    }
    Some(port_of(job, entry))
}

#[cfg(test)]
mod tests {
    use di_api::{DIJob, Reason};
    use serde_json::json;

    use super::*;
    use crate::view::{End, PodPhase};

    const WAIT: SignedDuration = SignedDuration::from_secs(2);

    fn collector(name: &str, replaces: Option<&str>) -> serde_json::Value {
        json!({
            "name": name, "type": "Collector", "origin": "Requested", "index": 0,
            "plannedAt": "2026-01-01T00:00:00Z", "replaces": replaces,
        })
    }

    fn pod(name: &str, conditions: &serde_json::Value) -> PodView {
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "labels": {"dijob-name": "j", "replica-type": "collector"}},
            "spec": {"containers": []},
            "status": {"phase": "Pending", "conditions": conditions},
        });
        PodView::new(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn job(plan: &[serde_json::Value]) -> DIJob {
        serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"coordinator": {"template": {}}, "collector": {"template": {}}},
            "status": {"plan": plan},
        }))
        .unwrap()
    }

    fn listed(plan: &[serde_json::Value], pods: &[PodView], at: &str) -> Vec<String> {
        let job = job(plan);
        let pod = |name: &str| pods.iter().find(|pod| pod.name == name);
        listing(&job, pod, |_| false, at.parse().unwrap(), WAIT).collectors
    }

    #[test]
    fn new_replicas_are_listed_once_they_have_a_node_or_the_wait_is_over() {
        let plan = [collector("new", None)];
        let (soon, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
        let verdict =
            |status: &str| pod("new", &json!([{"type": "PodScheduled", "status": status}]));
        let url = ["new.ns:22270"];
        assert!(listed(&plan, &[], soon).is_empty());
        assert!(listed(&plan, &[pod("new", &json!([]))], soon).is_empty());
        assert_eq!(listed(&plan, &[verdict("True")], soon), url);
        assert!(listed(&plan, &[verdict("False")], soon).is_empty());
        assert_eq!(listed(&plan, &[], late), url);
        assert_eq!(listed(&plan, &[pod("new", &json!([]))], late), url);
        assert!(listed(&plan, &[verdict("False")], late).is_empty());
    }

    #[test]
    fn who_waits_for_what_does_not_come_by_itself_is_left_out() {
        let plan = [collector("new", None)];
        let waiting = |reason: &str| {
            let mut pod = pod("new", &json!([{"type": "PodScheduled", "status": "True"}]));
            pod.waiting = Some(Box::new((reason.to_owned(), String::new())));
            listed(&plan, &[pod], "2026-01-01T00:00:09Z")
        };
        // Those that the contract names.
        for reason in [
            "ErrImagePull",
            "ImagePullBackOff",
            "CrashLoopBackOff",
            "CreateContainerConfigError",
            "InvalidImageName",
        ] {
            assert!(Reason::among(&Reason::STUCK, reason).is_some(), "{reason}");
        }
        for reason in Reason::STUCK {
            assert!(waiting(reason.as_str()).is_empty(), "{reason}");
        }
        for reason in ["ContainerCreating", "PodInitializing"] {
            assert_eq!(waiting(reason), ["new.ns:22270"], "{reason}");
        }
    }

    #[test]
    fn one_that_failed_and_its_replacement_swap_in_one_step() {
        let mut lost = collector("lost", None);
        let ended = |phase: &str| {
            let mut pod = pod("lost", &json!([{"type": "PodScheduled", "status": "True"}]));
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
            }));
            pod
        };
        let at = "2026-01-01T00:00:00Z";
        assert_eq!(
            listed(&[lost.clone()], &[ended("Failed")], at),
            ["lost.ns:22270"]
        );
        let mut told_to_go = ended("Succeeded");
        told_to_go.disrupted = true;
        assert_eq!(
            listed(&[lost.clone()], &[told_to_go], at),
            ["lost.ns:22270"]
        );
        assert!(listed(&[lost.clone()], &[ended("Succeeded")], at).is_empty());
        lost["state"] = json!("Replaced");
        let plan = [lost, collector("fresh", Some("lost"))];
        assert_eq!(listed(&plan, &[ended("Failed")], at), ["fresh.ns:22270"]);
    }

    #[test]
    fn replicas_whose_pods_the_server_refuses_are_not_on_their_way() {
        let (soon, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z");
        for (reason, at, wait, listed) in [
            ("QuotaExceeded", late, WAIT, 1),
            ("QuotaExceeded", late, SignedDuration::ZERO, 1),
            // Others than it may be refused.
            ("QuotaExceeded", soon, SignedDuration::ZERO, 2),
            ("ApiError", late, WAIT, 2),
        ] {
            let at: Timestamp = at.parse().unwrap();
            let job: DIJob = serde_json::from_value(json!({
                "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
                "metadata": {"name": "j", "namespace": "ns"},
                "spec": {"coordinator": {"template": {}}, "collector": {"template": {}}},
                "status": {
                    "plan": [collector("there", None), collector("refused", None)],
                    "conditions": [{
                        "type": "ReplicasReady", "status": "False", "reason": reason, "message": "no room",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }],
                },
            }))
            .unwrap();
            let there = pod(
                "there",
                &json!([{"type": "PodScheduled", "status": "True"}]),
            );
            let pod = |name: &str| (name == "there").then_some(&there);
            let collectors = listing(&job, pod, |_| false, at, wait).collectors;
            assert_eq!(collectors.len(), listed, "{reason}, {at}: {collectors:?}");
        }
    }

    #[test]
    fn a_unit_that_was_listed_is_not_hidden_when_its_ddp_learners_come_late() {
        let ddp = json!({
            "name": "d", "type": "DDPLearner", "origin": "Requested", "index": 0, "plannedAt": "2026-01-01T00:00:05Z",
            "resources": {"gpus": "2"}, "ddp": {"aggregator": "a", "worldSize": 2, "startRank": 0},
        });
        let aggregator = json!({
            "name": "a", "type": "Aggregator", "origin": "Requested", "index": 0, "plannedAt": "2026-01-01T00:00:00Z",
            "port": 5000, "resources": {"gpus": "2"},
        });
        let job: DIJob = serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"coordinator": {"template": {}}, "learner": {"template": {}}},
            "status": {"plan": [aggregator, ddp]},
        }))
        .unwrap();
        let at = "2026-01-01T00:00:06Z".parse().unwrap();
        let learners = listing(&job, |_| None, |_| false, at, WAIT).learners;
        assert_eq!(learners, ["a.ns:5000"]);
    }

    #[test]
    fn who_was_made_is_listed_before_the_watch_shows_it_and_not_once_it_has_gone() {
        let mut made = collector("made", None);
        made["uid"] = json!("u");
        let mut late = collector("late", Some("lost"));
        late["uid"] = json!("late");
        late["notBefore"] = json!("2026-01-01T00:05:00Z");
        let job = job(&[made, late]);
        let listed = |at: &str, saw_go: bool| {
            let at: Timestamp = at.parse().unwrap();
            listing(&job, |_| None, |uid| saw_go && uid == "u", at, WAIT).collectors
        };
        let (soon, never) = ("2026-01-01T00:00:09Z", "2026-01-01T00:01:30Z");
        assert_eq!(listed(soon, false), ["made.ns:22270"]);
        assert!(listed(soon, true).is_empty());
        assert!(listed(never, false).is_empty());
        assert_eq!(listed("2026-01-01T00:05:09Z", false), ["late.ns:22270"]);
    }

    #[test]
    fn a_list_is_good_until_one_of_its_waits_is_over() {
        let mut made = collector("made", None);
        made["uid"] = json!("u");
        made["notBefore"] = json!("2026-01-01T00:00:10Z");
        let job = job(&[made]);
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
    fn replacements_are_listed_at_once() {
        let plan = [collector("fresh", Some("lost"))];
        assert_eq!(
            listed(&plan, &[], "2026-01-01T00:00:00Z"),
            ["fresh.ns:22270"]
        );
    }
}
