use axum::{body::Body, extract::State as Extract, http::Uri, response::Response};
use di_api::{PlanEntry, Role};
use di_cache::JobView;
use di_plan::{PodView, RandomSuffixes, find_entry, find_successor, replace};
use jiff::Timestamp;

use super::{
    authorize_change, check_job_active, message_with_ignored, read_body, reject_unknown_fields,
    replica_urls, success_response, waits_for_quota,
};
use crate::{
    authorize::source::Source,
    error::{Error, Result},
    mutate::{job_change::JobChange, mutate_job},
    state::State,
    wire::{FailedRequest, Replicas, Success},
};

/// Replaces replicas that the coordinator reports as failed, and returns the URLs of their successors.
#[utoipa::path(post, path = "/replicas/failed", request_body = FailedRequest,
    responses((status = 200, description = "The successors of the failed replicas", body = Success<Replicas>), Error),
)]
pub(crate) async fn report_failed(
    Extract(state): Extract<State>,
    uri: Uri,
    source: Source,
    body: Body,
) -> Result<Response> {
    let body = read_body(&state, body).await?;
    let request = FailedRequest::parse(&body)?;
    reject_unknown_fields(&uri, request.unknown_fields.as_ref())?;
    let identity = authorize_change(&state, &source, &request.requester).await?;
    let key = request.requester.job_key();
    let (job, replacements) = mutate_job(&state, key, &identity, |job, draft| {
        check_job_active(job)?;
        let pods = state.pods.list_by_job(key);
        let now = Timestamp::now();
        Ok(replace_failed(job, draft, &pods, &request.pods, now))
    })
    .await?;
    let count = u64::try_from(replacements.len()).unwrap_or(0);
    state.metrics.replaced.inc_by(count);
    let replacements = replacements
        .iter()
        .map(|(role, name)| (*role, name.as_str()));
    let replaced =
        replica_urls(&state, key, &job, replacements).with_coordinator(request.requester.name());
    let message = if replaced.is_empty() {
        "nothing was replaced: none of these replicas is in the plan"
    } else {
        "the replicas are replaced"
    };
    let message = message_with_ignored(message, request.unknown_fields.as_ref());
    success_response(&message, replaced)
}

/// Replaces the replicas of `failed` that are in the plan, pods of units and ddp learners with all
/// others of their replica, and returns the latest successors. A replica that Kueue has preempted
/// has not failed: it waits for quota.
fn replace_failed(
    job: &JobView,
    draft: &mut JobChange,
    pods: &[PodView],
    failed: &[String],
    now: Timestamp,
) -> Vec<(Role, String)> {
    let plan = &mut draft.plan;
    for name in failed {
        if waits_for_quota(plan, name) {
            continue;
        }
        let made = find_entry(plan, name).and_then(PlanEntry::earliest_creation);
        let most = made.map(|made| now.duration_since(made).as_secs());
        let ran = pods
            .iter()
            .find(|pod| pod.name == *name)
            .and_then(|pod| pod.run_seconds(now, most));
        let is_replaced = find_entry(plan, name).is_some_and(PlanEntry::is_wanted);
        replace(job, plan, name, ran, &mut RandomSuffixes, now);
        if let Some(fresh) = plan.last_mut().filter(|_| is_replaced) {
            fresh.reported = true;
        }
    }
    let mut successors: Vec<_> = failed
        .iter()
        .filter_map(|name| find_successor(plan, name))
        .map(|entry| (entry.role, entry.name.clone()))
        .collect();
    successors.sort();
    successors.dedup();
    successors
}

#[cfg(test)]
mod tests {
    use di_api::EntryState;
    use di_fixtures::Job;
    use di_plan::find_entry;
    use serde_json::json;

    use super::*;

    #[test]
    fn known_names_are_replaced_once_and_old_names_map_to_the_last() {
        let job: JobView = Job::test().collectors(0).build();
        let plan = json!([
            {"name": "a", "type": "Collector", "origin": "Requested", "index": 0, "state": "Replaced"},
            {"name": "b", "type": "Collector", "origin": "Requested", "index": 0, "replaces": "a"},
            {"name": "c", "type": "Collector", "origin": "Requested", "index": 1, "state": "Removing"},
            {"name": "d", "type": "Collector", "origin": "Requested", "index": 2},
        ]);
        let mut draft = JobChange {
            plan: serde_json::from_value(plan).unwrap(),
            ..JobChange::default()
        };
        let untouched = draft.plan.clone();
        let reported = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let now = Timestamp::now();

        let answer = replace_failed(&job, &mut draft, &[], &reported(&["a", "c", "other"]), now);
        assert_eq!(answer, [(Role::Collector, "b".to_owned())]);
        assert_eq!(draft.plan, untouched);

        let answer = replace_failed(&job, &mut draft, &[], &reported(&["a", "b"]), now);
        let next = draft.plan.last().unwrap();
        assert_eq!(answer, [(Role::Collector, next.name.clone())]);
        assert_eq!((next.replaces.as_deref(), next.index), (Some("b"), 0));
        assert_eq!(
            find_entry(&draft.plan, "b").unwrap().state,
            EntryState::Replaced
        );
        assert!(find_entry(&draft.plan, "d").unwrap().is_wanted());
    }

    #[test]
    fn replica_that_waits_for_quota_is_not_replaced() {
        let job: JobView = Job::test().collectors(0).build();
        let plan = json!([
            {"name": "a", "type": "Collector", "origin": "Requested", "index": 0, "queue": "Waiting"},
            {"name": "b", "type": "Aggregator", "origin": "Requested", "index": 0, "queue": "Waiting"},
            {
                "name": "c", "type": "DDPLearner", "origin": "Requested", "index": 0,
                "ddp": {"aggregator": "b", "worldSize": 2, "startRank": 0},
            },
        ]);
        let mut draft = JobChange {
            plan: serde_json::from_value(plan).unwrap(),
            ..JobChange::default()
        };
        let untouched = draft.plan.clone();
        let reported = ["a", "b", "c"].map(str::to_owned);
        let answer = replace_failed(&job, &mut draft, &[], &reported, Timestamp::now());
        assert_eq!(draft.plan, untouched);
        let expected = [(Role::Collector, "a"), (Role::Aggregator, "b")];
        assert_eq!(answer, expected.map(|(role, name)| (role, name.to_owned())));
    }

    #[test]
    fn f20_learner_group_is_replaced_once_as_a_whole() {
        let job: JobView = Job::test().learners(0).build();
        let ddp = |name: &str, rank: i32| {
            json!({
                "name": name, "type": "DDPLearner", "origin": "Requested", "index": rank, "resources": {"gpus": "1"},
                "ddp": {"aggregator": "a", "worldSize": 2, "startRank": rank},
            })
        };
        let plan = json!([
            {"name": "a", "type": "Aggregator", "origin": "Requested", "index": 0, "port": 5000, "resources": {"gpus": "2"}},
            ddp("d", 0), ddp("e", 1),
        ]);
        let mut draft = JobChange {
            plan: serde_json::from_value(plan).unwrap(),
            ..JobChange::default()
        };
        let reported = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let now = Timestamp::now();
        let first = replace_failed(&job, &mut draft, &[], &reported(&["e", "d"]), now);
        assert_eq!(draft.plan.len(), 4, "one new aggregator");
        let next = &draft.plan[3];
        assert_eq!(first, [(Role::Aggregator, next.name.clone())]);
        assert_eq!(
            (next.replaces.as_deref(), next.port),
            (Some("a"), Some(5000))
        );
        assert!(
            draft.plan[..3]
                .iter()
                .all(|e| e.state == EntryState::Replaced)
        );
        for again in ["a", "d", "e"] {
            assert_eq!(
                replace_failed(&job, &mut draft, &[], &reported(&[again]), now),
                first
            );
        }
        assert_eq!(draft.plan.len(), 4);
    }
}
