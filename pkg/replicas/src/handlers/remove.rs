use std::collections::HashMap;

use axum::{body::Body, extract::State as Extract, http::HeaderMap, response::Response};
use di_api::{Origin, PlanEntry, RequestKind, Role, names};
use di_cache::{JobView, Key};
use di_plan::{Job, PodView, find_entry, scale_down_requested, scale_down_declared, find_successor};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{authorize_change, check_job_active, read, replica_urls, success, told};
use crate::{
    State,
    authorize::{Requester, Source},
    error::{Error, Result},
    idempotency::{
        history,
        keys::is_client_key,
        scale_down::{ScaleDown, recorded_pod_names, recorded_scale_downs},
    },
    mutate::{JobChange, ReplicaGroupRef, mutate_job},
    state::SharedState,
    wire::{RemoveRequest, Replicas, Success},
};

/// Lets go of replicas and answers with the URLs of those that go.
#[utoipa::path(delete, path = "/replicas", request_body = RemoveRequest,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, description = "Makes it safe to send the request again")),
    responses((status = 200, description = "Those that go", body = Success<Replicas>), Error),
)]
pub(crate) async fn remove(
    Extract(state): Extract<State>,
    source: Source,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let body = read(&state, body).await?;
    let request = RemoveRequest::parse(&body, state.settings.max_replicas_per_job)?;
    let (key, requester) = authorize_change(&state, &source, &request.target).await?;
    let in_flight_keys = &state.in_flight_keys;
    let idempotency_key =
        in_flight_keys.idempotency_key(RequestKind::Remove, &source, &headers, &body)?;
    let removed = remove_replicas(&state, &key, &request, &requester, idempotency_key.key()).await;
    let removed = idempotency_key.complete(removed)?;
    let told = told(request.is_empty(), "the replicas are let go of");
    success(told, removed)
}

async fn remove_replicas(
    state: &SharedState,
    key: &Key,
    request: &RemoveRequest,
    requester: &Requester,
    request_key: &str,
) -> Result<Replicas> {
    let counts = [
        (Role::Collector, request.collectors),
        (Role::Learner, request.learners),
    ];
    let asked = request.asked();
    let (job, gone) = mutate_job(state, key, requester, |job, draft| {
        let now = Timestamp::now();
        let kind = RequestKind::Remove;
        if let Some(earlier) = history::find_replay(job, kind, request_key, &asked, now)? {
            return Ok(earlier.released.clone());
        }
        check_job_active(job)?;
        remove_recorded(&mut draft.plan, &recorded_pod_names(job, now));
        let lowered = recorded_scale_downs(job, request_key, now);
        let pods = state.pods.list_by_job(key);
        let mut gone = Vec::new();
        for (role, count) in counts {
            gone.extend(scale_down_role(job, draft, &pods, role, count, &lowered));
        }
        if !gone.is_empty() || !draft.lower.is_empty() || is_client_key(request_key) {
            let note = history::new_record(kind, request_key, &asked, gone.clone());
            draft.answers = Some(note);
        }
        Ok(gone)
    })
    .await?;
    state
        .metrics
        .released
        .inc_by(u64::try_from(gone.len()).unwrap_or(0));
    let gone = gone
        .iter()
        .map(|name| (role_of_name(&job, name), name.as_str()));
    Ok(replica_urls(state, key, &job, gone).named(&request.target.coordinator))
}

/// The role of a replica that may have left the plan since.
fn role_of_name(job: &JobView, name: &str) -> Role {
    let named = || {
        let of_collectors = format!("{}-{}-", job.name_any(), Role::Collector);
        let is_collector = name.starts_with(&of_collectors);
        if is_collector {
            Role::Collector
        } else if names::job_of_aggregator(name).is_some() {
            Role::Aggregator
        } else {
            Role::Learner
        }
    };
    find_entry(job.plan_entries(), name).map_or_else(named, |entry| entry.role)
}

/// Lets go of those that were chosen when their count was lowered, by requests whose second write is yet to come, or of who holds their places now.
fn remove_recorded(plan: &mut [PlanEntry], recorded_pod_names: &[String]) {
    for name in recorded_pod_names {
        if let Some(holder) = find_successor(plan, name).map(|entry| entry.name.clone()) {
            di_plan::remove_entry(plan, &holder);
        }
    }
}

/// Requested replicas go first, then declared ones, whose declared count is lowered with them. Returns who goes.
///
/// `lowered` is what an earlier try of the same request has taken already.
fn scale_down_role(
    job: &JobView,
    draft: &mut JobChange,
    pods: &[PodView],
    role: Role,
    count: usize,
    lowered: &HashMap<ReplicaGroupRef, ScaleDown>,
) -> Vec<String> {
    let mut gone = Vec::new();
    let mut left = count;
    for (_, earlier) in lowered.iter().filter(|(bucket, _)| bucket.0 == role) {
        left = left.saturating_sub(usize::try_from(earlier.by).unwrap_or(0));
        gone.extend(earlier.names.iter().cloned());
    }
    let requested = scale_down_requested(&mut draft.plan, pods, role, left);
    left -= requested.len();
    gone.extend(requested);
    // Declared replicas that are not planned yet go first.
    for (bucket, declared) in declared_counts(job, role) {
        let unplanned = declared.saturating_sub(entries_of_group(&draft.plan, &bucket).count());
        let unplanned = unplanned.min(left);
        if unplanned > 0 {
            let by = i32::try_from(unplanned).unwrap_or(i32::MAX);
            draft.lower.entry(bucket).or_default().by += by;
            left -= unplanned;
        }
    }
    for name in scale_down_declared(&mut draft.plan, pods, role, left) {
        let group = find_entry(&draft.plan, &name).and_then(|entry| entry.group.clone());
        let fewer = draft.lower.entry((role, group)).or_default();
        fewer.by += 1;
        fewer.names.push(name.clone());
        gone.push(name);
    }
    gone
}

/// The declared counts of a role.
fn declared_counts(job: &JobView, role: Role) -> Vec<(ReplicaGroupRef, usize)> {
    let Some(part) = job.role_view(role) else {
        return Vec::new();
    };
    let groups = part.groups.iter();
    std::iter::once((None, part.replicas))
        .chain(groups.map(|(name, replicas)| (Some(name.clone()), *replicas)))
        .map(|(group, count)| ((role, group), usize::try_from(count).unwrap_or(0)))
        .collect()
}

/// The wanted entries of a bucket.
fn entries_of_group<'a>(
    plan: &'a [PlanEntry],
    bucket: &'a ReplicaGroupRef,
) -> impl Iterator<Item = &'a PlanEntry> {
    plan.iter().filter(move |e| {
        e.is_wanted()
            && e.origin == Origin::Declared
            && (e.role.counted_as(), &e.group) == (bucket.0, &bucket.1)
    })
}

#[cfg(test)]
mod tests {
    use di_api::EntryState;
    use serde_json::json;

    use super::*;
    use crate::fixture::pod;

    fn job(declared: i32, in_group: i32) -> JobView {
        let groups = json!([{"name": "big", "replicas": in_group}]);
        serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"coordinator": {"template": {}}, "collector": {"template": {}, "replicas": declared, "groups": groups}},
        }))
        .unwrap()
    }

    fn entry(name: &str, origin: &str, group: Option<&str>, i: usize) -> PlanEntry {
        serde_json::from_value(json!({
            "name": format!("{name}{i}"), "type": "Collector", "origin": origin, "index": i, "group": group,
        }))
        .unwrap()
    }

    fn draft(declared: usize, in_group: usize, requested: usize) -> JobChange {
        let plain = (0..declared).map(|i| entry("declared", "Declared", None, i));
        let big = (0..in_group).map(|i| entry("big", "Declared", Some("big"), i));
        let requested = (0..requested).map(|i| entry("requested", "Requested", None, i));
        JobChange {
            plan: plain.chain(big).chain(requested).collect(),
            ..JobChange::default()
        }
    }

    fn go(job: &JobView, draft: &mut JobChange, count: usize) -> Vec<String> {
        again(job, draft, count, &HashMap::new())
    }

    fn again(
        job: &JobView,
        draft: &mut JobChange,
        count: usize,
        lowered: &HashMap<ReplicaGroupRef, ScaleDown>,
    ) -> Vec<String> {
        let mut gone = scale_down_role(job, draft, &[], Role::Collector, count, lowered);
        gone.sort();
        gone
    }

    fn lowered_by(draft: &JobChange, group: Option<&str>) -> i32 {
        let bucket = (Role::Collector, group.map(str::to_owned));
        draft.lower.get(&bucket).map_or(0, |fewer| fewer.by)
    }

    #[test]
    fn requested_replicas_go_before_declared_ones() {
        let mut draft = draft(2, 0, 2);
        assert_eq!(go(&job(2, 0), &mut draft, 1), ["requested1"]);
        assert!(draft.lower.is_empty());
        assert_eq!(go(&job(2, 0), &mut draft, 2), ["declared1", "requested0"]);
        assert_eq!(lowered_by(&draft, None), 1);
    }

    #[test]
    fn of_each_origin_those_that_are_not_ready_go_first_and_then_the_newest() {
        let not_ready = ["declared0", "requested0"];
        let draft = || draft(2, 0, 3);
        let planned = draft().plan;
        let pods = planned.iter().map(|entry| {
            let mut pod = pod("j", Role::Collector, &entry.name, "j-uid", "10.0.0.1");
            pod.ready = !not_ready.contains(&&*entry.name);
            pod
        });
        let pods: Vec<_> = pods.collect();
        for (count, gone) in [
            (1, &["requested0"][..]),
            (2, &["requested0", "requested2"]),
            (4, &["declared0", "requested0", "requested1", "requested2"]),
        ] {
            let mut draft = draft();
            let job = job(2, 0);
            let role = Role::Collector;
            let mut went = scale_down_role(&job, &mut draft, &pods, role, count, &HashMap::new());
            went.sort();
            assert_eq!(went, gone);
        }
    }

    #[test]
    fn replicas_of_groups_go_too_and_their_count_is_lowered() {
        let mut draft = draft(1, 2, 1);
        let gone = go(&job(1, 2), &mut draft, 3);
        assert_eq!(gone, ["big0", "big1", "requested0"]);
        assert_eq!(
            (lowered_by(&draft, None), lowered_by(&draft, Some("big"))),
            (0, 2)
        );
    }

    #[test]
    fn no_more_go_than_there_are() {
        let mut draft = draft(2, 1, 1);
        assert_eq!(go(&job(2, 1), &mut draft, 9).len(), 4);
        assert_eq!(
            (lowered_by(&draft, None), lowered_by(&draft, Some("big"))),
            (2, 1)
        );
    }

    #[test]
    fn another_try_lowers_nothing_twice_and_answers_with_the_same() {
        // Lowered from 4 to 2, and one of them replaced, before the status was written.
        let mut first = draft(4, 0, 0);
        let gone = go(&job(4, 0), &mut first, 2);
        assert_eq!(gone, ["declared2", "declared3"]);
        let mut second = draft(4, 0, 0);
        second.plan[3].state = EntryState::Replaced;
        let mut next = entry("next", "Declared", None, 3);
        next.replaces = Some("declared3".to_owned());
        second.plan.push(next);
        remove_recorded(&mut second.plan, &gone);
        assert_eq!(again(&job(2, 0), &mut second, 2, &first.lower), gone);
        assert!(second.lower.is_empty());
        let wanted = second.plan.iter().filter(|e| e.is_wanted());
        let wanted: Vec<_> = wanted.map(|e| e.name.as_str()).collect();
        assert_eq!(wanted, ["declared0", "declared1"]);
    }

    #[test]
    fn nobody_takes_those_that_another_has_taken_whose_status_is_not_written() {
        let mut first = draft(5, 0, 0);
        let theirs = go(&job(5, 0), &mut first, 2);
        let mut second = draft(5, 0, 0);
        remove_recorded(&mut second.plan, &theirs);
        let ours = go(&job(3, 0), &mut second, 2);
        assert_eq!(ours, ["declared1", "declared2"]);
        let bucket = (Role::Collector, None);
        assert_eq!(second.lower[&bucket].by, 2);
        let mut names = second.lower[&bucket].names.clone();
        names.sort();
        assert_eq!(names, ours);
    }

    #[test]
    fn declared_replicas_not_planned_yet_go_first() {
        let mut draft = draft(1, 0, 0);
        assert_eq!(go(&job(3, 0), &mut draft, 2), Vec::<String>::new());
        assert_eq!(lowered_by(&draft, None), 2);
    }
}
