//! What becomes of the pods that an add has planned.

use std::collections::HashSet;

use di_api::{PlanEntry, Role};
use di_cache::{JobView, Key};
use di_plan::{Job, PodView, find_entry, group_members};
use tokio::time::{Instant, timeout_at};

use crate::{authorize::owns_pod, state::SharedState};

/// Waits, but not long, until the scheduler has looked at each pod: a list right after shows no replica that has no room.
///
/// Returns what the API server says if it refuses pods of these. It may be others of the job that it refuses, so these are waited for as long as
/// ever more of them come, though not beyond `last`.
pub(super) async fn wait_for_scheduling(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    planned: &[(Role, String)],
    last: Instant,
) -> Option<String> {
    let longest = state.settings.create_wait;
    let deadline = Instant::now() + longest;
    let mut unjudged: HashSet<&str> = planned.iter().map(|(_, name)| name.as_str()).collect();
    let mut fewest = None;
    // When those that are lacking are taken to be refused.
    let mut given_up = deadline;
    let mut changes = state.pods.subscribe_changes();
    loop {
        changes.mark_unchanged();
        // The ddp learners of aggregators are planned meanwhile.
        let known = state.jobs.get(key);
        let plan = known.as_deref().map_or(&[][..], Job::plan_entries);
        let lacking = state.pods.read_objects(key, |pods| {
            let has = |name: &str| {
                pods.get(name)
                    .is_some_and(|pod| owns_pod(job, pod) && has_scheduling_result(pod))
            };
            let have = |aggregator: &str| {
                let mut all = group_members(plan, aggregator).peekable();
                all.peek().is_some() && all.all(|member| has(&member.name))
            };
            let is_unit = |name: &str| find_entry(plan, name).is_some_and(|e| e.role == Role::Aggregator);
            unjudged.retain(|name| !has(name) || (is_unit(name) && !have(name)));
            missing_count(plan, planned, |name| pods.get(name).is_some())
        });
        if unjudged.is_empty() {
            return None;
        }
        let now = Instant::now();
        if *fewest.get_or_insert(lacking) > lacking {
            fewest = Some(lacking);
            given_up = now + longest;
        }
        let refused = known.as_deref().and_then(Job::rejection_message);
        let refused = refused.filter(|_| lacking > 0);
        let until = match refused {
            Some(_) => given_up.min(last).max(deadline),
            None => deadline,
        };
        if now >= until {
            return refused.filter(|_| now >= given_up).map(str::to_owned);
        }
        timeout_at(until, changes.changed()).await.ok();
    }
}

/// Whether some of these are neither there nor planned any longer. Of a request that came again, they may be what an earlier try of it was about to
/// take back while our cache was behind.
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

/// How many pods of these and of their units are not there. Aggregators whose ddp learners are not planned yet lack one for each of their GPUs.
fn missing_count(
    plan: &[PlanEntry],
    planned: &[(Role, String)],
    is_there: impl Fn(&str) -> bool,
) -> usize {
    let led = |unit: &PlanEntry| {
        let mut all = group_members(plan, &unit.name).peekable();
        if all.peek().is_none() {
            return usize::try_from(unit.gpu_count()).unwrap_or(0);
        }
        all.filter(|member| !is_there(&member.name)).count()
    };
    let of = |name: &str| {
        let unit = find_entry(plan, name).filter(|entry| entry.role == Role::Aggregator);
        usize::from(!is_there(name)) + unit.map_or(0, led)
    };
    planned.iter().map(|(_, name)| of(name)).sum()
}

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

    /// How the wait for three collectors ends, and after how many tenths of a second, when their pods come so many after its begin.
    async fn waited(status: &Value, coming: &[u64], last: u64) -> (Option<String>, u128) {
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
        let waited = async {
            let refused = wait_for_scheduling(state, &key, &job, &planned, after(last)).await;
            (refused, began.elapsed().as_millis() / 100)
        };
        let (waited, ()) = tokio::join!(waited, come);
        waited
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_keep_coming_are_not_taken_for_the_ones_that_are_refused() {
        let told = json!([{
            "type": "ReplicasReady", "status": "False", "reason": "QuotaExceeded", "message": "no room",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let status = json!({"phase": "Running", "conditions": told});
        let refused = || Some("no room".to_owned());
        for (coming, last, ends) in [
            (&[15, 30, 45][..], 250, (None, 45)),
            // Others are refused, and the time is up.
            (&[15, 30], 40, (None, 40)),
            (&[], 250, (refused(), 20)),
            (&[15], 250, (refused(), 35)),
            (&[15, 30], 250, (refused(), 50)),
            // However little time there is, they are given as much as anybody.
            (&[], 0, (refused(), 20)),
        ] {
            assert_eq!(waited(&status, coming, last).await, ends, "{coming:?}");
        }
    }

    #[tokio::test]
    async fn what_is_neither_there_nor_planned_has_vanished() {
        let entry = json!({"name": "j-collector-0", "type": "Collector", "origin": "Requested", "index": 0});
        for (plan, is_there, has_vanished) in [
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
                has_vanished,
                "{status} {is_there}"
            );
        }
    }

    #[test]
    fn of_a_unit_its_ddp_learners_are_lacking_too() {
        let unit = json!({
            "name": "u", "type": "Aggregator", "origin": "Requested", "index": 0, "resources": {"gpus": "6"},
        });
        let member = |name: &str| {
            json!({
                "name": name, "type": "DDPLearner", "origin": "Requested", "index": 0,
                "ddp": {"aggregator": "u", "worldSize": 6, "startRank": 0},
            })
        };
        let lacking = |plan: Value, pods: &[&str]| {
            let plan: Vec<PlanEntry> = serde_json::from_value(plan).unwrap();
            let planned = [(Role::Aggregator, "u".to_owned())];
            missing_count(&plan, &planned, |name| pods.contains(&name))
        };
        assert_eq!(lacking(json!([unit]), &[]), 7);
        assert_eq!(lacking(json!([unit]), &["u"]), 6, "not planned yet");
        let whole = json!([unit, member("d"), member("e")]);
        assert_eq!(lacking(whole.clone(), &["u"]), 2);
        assert_eq!(lacking(whole.clone(), &["u", "e"]), 1);
        assert_eq!(lacking(whole, &["u", "d", "e"]), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn where_none_is_refused_nobody_waits_for_those_who_come_late() {
        let status = json!({"phase": "Running"});
        assert_eq!(waited(&status, &[15, 30], 250).await, (None, 20));
        assert_eq!(waited(&status, &[5, 5, 15], 250).await, (None, 15));
    }
}
