//! Waits for the scheduler's result of the pods that a POST has planned.

use std::collections::HashSet;

use di_api::{PlanEntry, Role};
use di_cache::{JobView, Key};
use di_plan::{Job, PodView, find_entry, wanted_members};
use tokio::time::{Instant, timeout_at};

use crate::{authorize::identity::owns_pod, state::SharedState};

/// Waits until each pod has a scheduling result, at most `scheduling_wait`, so that a list right after it
/// leaves out pods that do not fit. See docs/decisions/0012.
///
/// Returns the message of the API server if it rejects these pods. It may reject other pods of the job
/// instead, so the wait restarts with each pod that appears, until `latest_deadline`.
pub(super) async fn wait_for_scheduling(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    planned: &[(Role, String)],
    latest_deadline: Instant,
) -> Option<String> {
    let max_wait = state.settings.scheduling_wait;
    let deadline = Instant::now() + max_wait;
    let mut unscheduled: HashSet<&str> = planned.iter().map(|(_, name)| name.as_str()).collect();
    let mut min_missing = None;
    // From this time on, the missing pods count as rejected.
    let mut rejected_at = deadline;
    let mut changes = state.pods.subscribe_changes();
    loop {
        changes.mark_unchanged();
        // The reconciler plans ddp learners and the pods of units during the wait.
        let known = state.jobs.get(key);
        let plan = known.as_deref().map_or(&[][..], Job::plan_entries);
        let missing = state.pods.read_objects(key, |pods| {
            let is_scheduled = |name: &str| {
                pods.get(name)
                    .is_some_and(|pod| owns_pod(job, pod) && has_scheduling_result(pod))
            };
            let group_is_scheduled = |leader: &str| {
                let mut all = wanted_members(plan, leader).peekable();
                all.peek().is_some() && all.all(|member| is_scheduled(&member.name))
            };
            let leads_group =
                |name: &str| find_entry(plan, name).is_some_and(PlanEntry::leads_group);
            unscheduled.retain(|name| {
                !is_scheduled(name) || (leads_group(name) && !group_is_scheduled(name))
            });
            missing_count(plan, planned, |name| pods.get(name).is_some())
        });
        if unscheduled.is_empty() {
            return None;
        }
        let now = Instant::now();
        if *min_missing.get_or_insert(missing) > missing {
            min_missing = Some(missing);
            rejected_at = now + max_wait;
        }
        let rejection = known.as_deref().and_then(Job::rejection_message);
        let rejection = rejection.filter(|_| missing > 0);
        let until = match rejection {
            Some(_) => rejected_at.min(latest_deadline).max(deadline),
            None => deadline,
        };
        if now >= until {
            return rejection.filter(|_| now >= rejected_at).map(str::to_owned);
        }
        timeout_at(until, changes.changed()).await.ok();
    }
}

/// Whether some replicas have neither a pod nor a plan entry. An earlier attempt of the same request
/// may have rolled them back while the cache was behind.
pub(super) fn are_gone(state: &SharedState, key: &Key, planned: &[(Role, String)]) -> bool {
    let Some(job) = state.jobs.get(key) else {
        return false;
    };
    state.pods.read_objects(key, |pods| {
        planned.iter().any(|(_, name)| {
            let is_planned = find_entry(job.plan_entries(), name).is_some_and(PlanEntry::is_wanted);
            !is_planned && pods.get(name).is_none()
        })
    })
}

/// Number of pods that follow an aggregator or a leader, before they are planned: at most one per GPU.
pub(super) fn unplanned_members(leader: &PlanEntry) -> usize {
    let others = match &leader.unit {
        Some(place) => place.size - 1,
        None => leader.gpu_count(),
    };
    usize::try_from(others).unwrap_or(0)
}

/// Counts the missing pods of these replicas, also those that are not planned yet.
fn missing_count(
    plan: &[PlanEntry],
    planned: &[(Role, String)],
    is_there: impl Fn(&str) -> bool,
) -> usize {
    let missing_members = |group: &PlanEntry| {
        let mut all = wanted_members(plan, &group.name).peekable();
        if all.peek().is_none() {
            return unplanned_members(group);
        }
        all.filter(|member| !is_there(&member.name)).count()
    };
    let missing_pods = |name: &str| {
        let group = find_entry(plan, name).filter(|entry| entry.leads_group());
        usize::from(!is_there(name)) + group.map_or(0, missing_members)
    };
    planned.iter().map(|(_, name)| missing_pods(name)).sum()
}

/// Whether the scheduler has a result for the pod, or the pod needs none.
fn has_scheduling_result(pod: &PodView) -> bool {
    pod.scheduled != Ok(false) || pod.stuck_reason().is_some() || pod.deleting || !pod.is_active()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::sleep_until;

    use super::*;
    use crate::{Settings, fixture::*};

    /// Returns the result of the wait for three collectors and its duration in tenths of a second.
    /// `coming` has the time at which each pod appears, in tenths.
    async fn wait_for_three(status: &Value, coming: &[u64], last: u64) -> (Option<String>, u128) {
        let fixture = fixture_with(Settings::default(), [job("j", status)], []);
        let state = &fixture.state;
        let key = ("rl".to_owned(), "j".to_owned());
        let job = state.jobs.get(&key).unwrap();
        let planned = [0, 1, 2].map(|i| (Role::Collector, format!("j-collector-{i}")));
        let began = Instant::now();
        let after = |tenths: u64| began + Duration::from_millis(tenths * 100);
        let come = async {
            for (tenths, (role, name)) in coming.iter().zip(&planned) {
                sleep_until(after(*tenths)).await;
                let pod = pod("j", *role, name, "j-uid", "10.0.0.2");
                state.pods.on_apply(pod);
            }
        };
        let wait = async {
            let rejection = wait_for_scheduling(state, &key, &job, &planned, after(last)).await;
            (rejection, began.elapsed().as_millis() / 100)
        };
        let (result, ()) = tokio::join!(wait, come);
        result
    }

    #[tokio::test(start_paused = true)]
    async fn wait_restarts_with_each_pod_while_quota_is_exceeded() {
        let conditions = json!([{
            "type": "ReplicasReady", "status": "False", "reason": "QuotaExceeded", "message": "no room",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let status = json!({"phase": "Running", "conditions": conditions});
        let rejection = || Some("no room".to_owned());
        for (coming, last, ends) in [
            (&[15, 30, 45][..], 250, (None, 45)),
            // Other pods are rejected, and `latest_deadline` is reached.
            (&[15, 30], 40, (None, 40)),
            (&[], 250, (rejection(), 20)),
            (&[15], 250, (rejection(), 35)),
            (&[15, 30], 250, (rejection(), 50)),
            // The first wait is not shortened by `latest_deadline`.
            (&[], 0, (rejection(), 20)),
        ] {
            assert_eq!(
                wait_for_three(&status, coming, last).await,
                ends,
                "{coming:?}"
            );
        }
    }

    #[tokio::test]
    async fn replica_without_pod_and_plan_entry_is_gone() {
        let entry = json!({"name": "j-collector-0", "type": "Collector", "origin": "Requested", "index": 0});
        for (plan, is_there, is_gone) in [
            (json!([]), false, true),
            (json!([]), true, false),
            (json!([entry]), false, false),
        ] {
            let status = json!({"phase": "Running", "plan": plan});
            let pods =
                is_there.then(|| pod("j", Role::Collector, "j-collector-0", "j-uid", "10.0.0.2"));
            let fixture = fixture_with(Settings::default(), [job("j", &status)], pods);
            let key = ("rl".to_owned(), "j".to_owned());
            let planned = [(Role::Collector, "j-collector-0".to_owned())];
            assert_eq!(
                are_gone(&fixture.state, &key, &planned),
                is_gone,
                "{status} {is_there}"
            );
        }
    }

    #[test]
    fn missing_pods_include_ddp_learners_of_the_group() {
        let group = json!({
            "name": "u", "type": "Aggregator", "origin": "Requested", "index": 0, "resources": {"gpus": "6"},
        });
        let member = |name: &str| {
            json!({
                "name": name, "type": "DDPLearner", "origin": "Requested", "index": 0,
                "ddp": {"aggregator": "u", "worldSize": 6, "startRank": 0},
            })
        };
        let missing = |plan: Value, pods: &[&str]| {
            let plan: Vec<PlanEntry> = serde_json::from_value(plan).unwrap();
            let planned = [(Role::Aggregator, "u".to_owned())];
            missing_count(&plan, &planned, |name| pods.contains(&name))
        };
        assert_eq!(missing(json!([group]), &[]), 7);
        assert_eq!(missing(json!([group]), &["u"]), 6, "not planned yet");
        let whole = json!([group, member("d"), member("e")]);
        assert_eq!(missing(whole.clone(), &["u"]), 2);
        assert_eq!(missing(whole.clone(), &["u", "e"]), 1);
        assert_eq!(missing(whole, &["u", "d", "e"]), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_after_create_wait_without_rejected_pods() {
        let status = json!({"phase": "Running"});
        assert_eq!(wait_for_three(&status, &[15, 30], 250).await, (None, 20));
        assert_eq!(wait_for_three(&status, &[5, 5, 15], 250).await, (None, 15));
    }
}
