use std::collections::HashMap;

use axum::{
    body::Body,
    extract::State as Extract,
    http::{HeaderMap, Uri},
    response::Response,
};
use di_api::{Origin, PlanEntry, RequestKind, Role, names};
use di_cache::JobView;
use di_plan::{
    Job, PodView, find_entry, find_successor, scale_down_declared, scale_down_requested,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    authorize_change, check_job_active, message_with_ignored, read_body, reject_unknown_fields,
    replica_urls, result_message, success_response,
};
use crate::{
    authorize::{identity::Identity, source::Source},
    error::{Error, Result},
    idempotency::{
        history,
        keys::is_client_key,
        recorded_scale_down::{
            ReplicaGroupRef, ScaleDown, recorded_pod_names, recorded_scale_downs,
        },
    },
    mutate::{job_change::JobChange, mutate_job},
    state::{SharedState, State},
    wire::{RemoveRequest, Replicas, Success},
};

/// Removes replicas and returns their URLs.
#[utoipa::path(delete, path = "/replicas", request_body = RemoveRequest,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, description = "Makes it safe to repeat the request")),
    responses((status = 200, description = "The removed replicas", body = Success<Replicas>), Error),
)]
pub(crate) async fn remove(
    Extract(state): Extract<State>,
    uri: Uri,
    source: Source,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let body = read_body(&state, body).await?;
    let request = RemoveRequest::parse(&body, state.settings.max_replicas_per_job)?;
    reject_unknown_fields(&uri, request.unknown_fields.as_ref())?;
    let identity = authorize_change(&state, &source, &request.requester).await?;
    let unanswered_keys = &state.unanswered_keys;
    let idempotency_key =
        unanswered_keys.key_for_request(RequestKind::Remove, &source, &headers, &body)?;
    let removed = remove_replicas(&state, &identity, &request, idempotency_key.key()).await;
    let removed = idempotency_key.complete(removed)?;
    let message = result_message(request.is_empty(), "the replicas are removed");
    let message = message_with_ignored(message, request.unknown_fields.as_ref());
    success_response(&message, removed)
}

async fn remove_replicas(
    state: &SharedState,
    identity: &Identity,
    request: &RemoveRequest,
    request_key: &str,
) -> Result<Replicas> {
    let key = request.requester.job_key();
    let (job, removed) = mutate_job(state, key, identity, |job, draft| {
        let pods = state.pods.list_by_job(key);
        plan_removal(job, draft, &pods, request, request_key)
    })
    .await?;
    let count = u64::try_from(removed.len()).unwrap_or(0);
    state.metrics.released.inc_by(count);
    let removed = removed
        .iter()
        .map(|name| (role_of_name(&job, name), name.as_str()));
    Ok(replica_urls(state, key, &job, removed).with_coordinator(request.requester.name()))
}

/// Removes the requested replicas from the plan, and returns their names. A repeated request gets
/// the names of the first one.
fn plan_removal(
    job: &JobView,
    draft: &mut JobChange,
    pods: &[PodView],
    request: &RemoveRequest,
    request_key: &str,
) -> Result<Vec<String>> {
    let (kind, now) = (RequestKind::Remove, Timestamp::now());
    let description = request.description();
    if let Some(earlier) = history::find_replay(job, kind, request_key, &description, now)? {
        return Ok(earlier.released.clone());
    }
    check_job_active(job)?;
    remove_recorded(&mut draft.plan, &recorded_pod_names(job, now));
    let recorded = recorded_scale_downs(job, request_key, now);
    let mut removed = Vec::new();
    for (role, count) in [
        (Role::Collector, request.collectors),
        (Role::Learner, request.learners),
    ] {
        removed.extend(scale_down_role(job, draft, pods, role, count, &recorded));
    }
    if !removed.is_empty() || !draft.scale_downs.is_empty() || is_client_key(request_key) {
        let record = history::new_record(kind, request_key, &description, removed.clone());
        draft.new_record = Some(record);
    }
    Ok(removed)
}

/// Returns the role of a replica, from its name if it has left the plan.
fn role_of_name(job: &JobView, name: &str) -> Role {
    let role_from_name = || {
        let collector_prefix = format!("{}-{}-", job.name_any(), Role::Collector);
        let is_collector = name.starts_with(&collector_prefix);
        if is_collector {
            Role::Collector
        } else if names::job_of_aggregator(name).is_some() {
            Role::Aggregator
        } else {
            Role::Learner
        }
    };
    find_entry(job.plan_entries(), name).map_or_else(role_from_name, |entry| entry.role)
}

/// Removes replicas, or their successors, that other requests have chosen but not yet written to the
/// status.
fn remove_recorded(plan: &mut [PlanEntry], names: &[String]) {
    for name in names {
        if let Some(latest) = find_successor(plan, name).map(|entry| entry.name.clone()) {
            di_plan::remove_entry(plan, &latest);
        }
    }
}

/// Removes requested replicas first, then declared ones, and lowers their declared counts. Returns the
/// removed names.
///
/// `recorded` has the scale-downs of earlier attempts of the same request; they count too.
fn scale_down_role(
    job: &JobView,
    draft: &mut JobChange,
    pods: &[PodView],
    role: Role,
    count: usize,
    recorded: &HashMap<ReplicaGroupRef, ScaleDown>,
) -> Vec<String> {
    let mut removed = Vec::new();
    let mut left = count;
    for (_, earlier) in recorded.iter().filter(|(group, _)| group.0 == role) {
        left = left.saturating_sub(usize::try_from(earlier.by).unwrap_or(0));
        removed.extend(earlier.names.iter().cloned());
    }
    let requested = scale_down_requested(&mut draft.plan, pods, role, left);
    left -= requested.len();
    removed.extend(requested);
    // Declared replicas without a plan entry are removed first.
    for (group, declared) in declared_counts(job, role) {
        let unplanned = declared.saturating_sub(entries_of_group(&draft.plan, &group).count());
        let unplanned = unplanned.min(left);
        if unplanned > 0 {
            let by = i32::try_from(unplanned).unwrap_or(i32::MAX);
            draft.scale_downs.entry(group).or_default().by += by;
            left -= unplanned;
        }
    }
    for name in scale_down_declared(&mut draft.plan, pods, role, left) {
        let group = find_entry(&draft.plan, &name).and_then(|entry| entry.group.clone());
        let scale_down = draft.scale_downs.entry((role, group)).or_default();
        scale_down.by += 1;
        scale_down.names.push(name.clone());
        removed.push(name);
    }
    removed
}

/// Returns the declared counts of a role.
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

/// Returns the desired plan entries of a replica group.
fn entries_of_group<'a>(
    plan: &'a [PlanEntry],
    group: &'a ReplicaGroupRef,
) -> impl Iterator<Item = &'a PlanEntry> {
    plan.iter().filter(move |e| {
        e.is_wanted() && e.origin == Origin::Declared && e.counts_as(group.0) && e.group == group.1
    })
}

#[cfg(test)]
mod tests {
    use di_api::EntryState;
    use di_fixtures::Job;
    use serde_json::json;

    use super::*;
    use crate::fixture::pod;

    fn job(declared: i32, in_group: i32) -> JobView {
        let groups = json!([{"name": "big", "replicas": in_group}]);
        let collector = json!({"replicas": declared, "groups": groups});
        Job::test()
            .collectors(0)
            .spec(json!({"collector": collector}))
            .build()
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

    fn scale_down(job: &JobView, draft: &mut JobChange, count: usize) -> Vec<String> {
        scale_down_again(job, draft, count, &HashMap::new())
    }

    fn scale_down_again(
        job: &JobView,
        draft: &mut JobChange,
        count: usize,
        recorded: &HashMap<ReplicaGroupRef, ScaleDown>,
    ) -> Vec<String> {
        let mut removed = scale_down_role(job, draft, &[], Role::Collector, count, recorded);
        removed.sort();
        removed
    }

    fn lowered_by(draft: &JobChange, group: Option<&str>) -> i32 {
        let group = (Role::Collector, group.map(str::to_owned));
        draft
            .scale_downs
            .get(&group)
            .map_or(0, |scale_down| scale_down.by)
    }

    #[test]
    fn requested_replicas_are_removed_before_declared_ones() {
        let mut draft = draft(2, 0, 2);
        assert_eq!(scale_down(&job(2, 0), &mut draft, 1), ["requested1"]);
        assert!(draft.scale_downs.is_empty());
        assert_eq!(
            scale_down(&job(2, 0), &mut draft, 2),
            ["declared1", "requested0"]
        );
        assert_eq!(lowered_by(&draft, None), 1);
    }

    #[test]
    fn unready_then_newest_replicas_are_removed_first() {
        let not_ready = ["declared0", "requested0"];
        let draft = || draft(2, 0, 3);
        let planned = draft().plan;
        let pods = planned.iter().map(|entry| {
            let mut pod = pod("j", Role::Collector, &entry.name, "j-uid", "10.0.0.1");
            pod.ready = !not_ready.contains(&&*entry.name);
            pod
        });
        let pods: Vec<_> = pods.collect();
        for (count, removed) in [
            (1, &["requested0"][..]),
            (2, &["requested0", "requested2"]),
            (4, &["declared0", "requested0", "requested1", "requested2"]),
        ] {
            let mut draft = draft();
            let job = job(2, 0);
            let role = Role::Collector;
            let mut names = scale_down_role(&job, &mut draft, &pods, role, count, &HashMap::new());
            names.sort();
            assert_eq!(names, removed);
        }
    }

    #[test]
    fn replicas_of_groups_are_removed_and_their_count_lowered() {
        let mut draft = draft(1, 2, 1);
        let removed = scale_down(&job(1, 2), &mut draft, 3);
        assert_eq!(removed, ["big0", "big1", "requested0"]);
        assert_eq!(
            (lowered_by(&draft, None), lowered_by(&draft, Some("big"))),
            (0, 2)
        );
    }

    #[test]
    fn removal_is_limited_to_existing_replicas() {
        let mut draft = draft(2, 1, 1);
        assert_eq!(scale_down(&job(2, 1), &mut draft, 9).len(), 4);
        assert_eq!(
            (lowered_by(&draft, None), lowered_by(&draft, Some("big"))),
            (2, 1)
        );
    }

    #[test]
    fn repeated_removal_lowers_counts_once_with_the_same_names() {
        // The count is lowered from 4 to 2 and a replica is replaced before the status is written.
        let mut first = draft(4, 0, 0);
        let removed = scale_down(&job(4, 0), &mut first, 2);
        assert_eq!(removed, ["declared2", "declared3"]);
        let mut second = draft(4, 0, 0);
        second.plan[3].state = EntryState::Replaced;
        let mut next = entry("next", "Declared", None, 3);
        next.replaces = Some("declared3".to_owned());
        second.plan.push(next);
        remove_recorded(&mut second.plan, &removed);
        assert_eq!(
            scale_down_again(&job(2, 0), &mut second, 2, &first.scale_downs),
            removed
        );
        assert!(second.scale_downs.is_empty());
        let wanted = second.plan.iter().filter(|e| e.is_wanted());
        let wanted: Vec<_> = wanted.map(|e| e.name.as_str()).collect();
        assert_eq!(wanted, ["declared0", "declared1"]);
    }

    #[test]
    fn removal_skips_replicas_chosen_by_an_unwritten_removal() {
        let mut first = draft(5, 0, 0);
        let theirs = scale_down(&job(5, 0), &mut first, 2);
        let mut second = draft(5, 0, 0);
        remove_recorded(&mut second.plan, &theirs);
        let ours = scale_down(&job(3, 0), &mut second, 2);
        assert_eq!(ours, ["declared1", "declared2"]);
        let group = (Role::Collector, None);
        assert_eq!(second.scale_downs[&group].by, 2);
        let mut names = second.scale_downs[&group].names.clone();
        names.sort();
        assert_eq!(names, ours);
    }

    #[test]
    fn unplanned_declared_replicas_are_removed_first() {
        let mut draft = draft(1, 0, 0);
        assert_eq!(scale_down(&job(3, 0), &mut draft, 2), Vec::<String>::new());
        assert_eq!(lowered_by(&draft, None), 2);
    }
}
