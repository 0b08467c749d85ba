use axum::{body::Body, extract::State as Extract, http::HeaderMap, response::Response};
use di_api::{Origin, PlanEntry, RequestKind, Role, names};
use di_cache::{JobView, Key};
use di_plan::{Job, PodView, find, release, release_declared, release_surplus};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{admit, check_live, read, success, urls};
use crate::{
    State,
    authorize::{Caller, Source},
    error::{Error, Result},
    mutate::{Bucket, Draft, answered, lowered, mutate},
    retries::is_given,
    state::Shared,
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
    let (key, caller) = admit(&state, &source, &request.target).await?;
    let retries = &state.retries;
    let ticket = retries.ticket(RequestKind::Remove, &source, &headers, &body)?;
    let removed = remove_from(&state, &key, &request, &caller, ticket.key()).await;
    success("the replicas are let go of", ticket.settle(removed)?)
}

async fn remove_from(
    state: &Shared,
    key: &Key,
    request: &RemoveRequest,
    caller: &Caller,
    request_key: &str,
) -> Result<Replicas> {
    let counts = [
        (Role::Collector, request.collectors),
        (Role::Learner, request.learners),
    ];
    // What was wanted before the first write: the reconciler may mark the same entries between our two.
    let mut before: Option<Vec<PlanEntry>> = None;
    let (job, gone) = mutate(state, key, caller, |job, draft| {
        let now = Timestamp::now();
        if let Some(answered) = answered::find(job, RequestKind::Remove, request_key, now) {
            return Ok(answered.released.clone());
        }
        check_live(job)?;
        let lowered = lowered(job, request_key, now);
        let pods = state.pods.of_job(key);
        let before = before.get_or_insert_with(|| job.plan().to_vec());
        let mut gone = Vec::new();
        for (role, count) in counts {
            let lowered = |bucket: &Bucket| {
                let by = lowered.get(bucket).copied().unwrap_or(0);
                usize::try_from(by).unwrap_or(0)
            };
            gone.extend(let_go(job, draft, &pods, role, count, before, lowered));
        }
        if !gone.is_empty() || !draft.lower.is_empty() || is_given(request_key) {
            let kind = RequestKind::Remove;
            draft.answers = Some(answered::new(kind, request_key, gone.clone()));
        }
        Ok(gone)
    })
    .await?;
    state
        .metrics
        .released
        .inc_by(u64::try_from(gone.len()).unwrap_or(0));
    let gone = gone.iter().map(|name| (role_of(&job, name), name.as_str()));
    Ok(urls(state, key, &job, gone).named(&request.target.coordinator))
}

/// The role of a replica that may have left the plan since.
fn role_of(job: &JobView, name: &str) -> Role {
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
    find(job.plan(), name).map_or_else(named, |entry| entry.role)
}

/// Requested replicas go first, then declared ones, whose declared count is lowered with them. Returns who goes.
///
/// `lowered` is what an earlier try of the same request has lowered already, and `before` the plan before that.
fn let_go(
    job: &JobView,
    draft: &mut Draft,
    pods: &[PodView],
    role: Role,
    count: usize,
    before: &[PlanEntry],
    lowered: impl Fn(&Bucket) -> usize,
) -> Vec<String> {
    let buckets = buckets(job, role);
    let mut gone = Vec::new();
    let mut left = count;
    for (bucket, declared) in &buckets {
        let lowered = lowered(bucket);
        left = left.saturating_sub(lowered);
        let planned = in_bucket(&draft.plan, bucket).count();
        let surplus = planned.saturating_sub(*declared).min(lowered);
        let group = bucket.1.as_deref();
        let ours = release_surplus(&mut draft.plan, pods, role, group, planned - surplus);
        // The reconciler may have marked what an earlier try lowered.
        let marked = in_bucket(before, bucket)
            .filter(|old| find(&draft.plan, &old.name).is_none_or(|now| !now.is_wanted()))
            .filter(|old| !ours.contains(&old.name));
        let names = marked.map(|old| old.name.clone());
        gone.extend(names.take(lowered - ours.len()));
        gone.extend(ours);
    }
    let requested = release(&mut draft.plan, pods, role, left);
    left -= requested.len();
    gone.extend(requested);
    // Declared replicas that are not planned yet go first.
    for (bucket, declared) in &buckets {
        let unplanned = declared.saturating_sub(in_bucket(&draft.plan, bucket).count());
        lower(draft, bucket, unplanned.min(left));
        left -= unplanned.min(left);
    }
    for name in release_declared(&mut draft.plan, pods, role, left) {
        let group = find(&draft.plan, &name).and_then(|entry| entry.group.clone());
        lower(draft, &(role, group), 1);
        gone.push(name);
    }
    gone
}

/// The declared counts of a role.
fn buckets(job: &JobView, role: Role) -> Vec<(Bucket, usize)> {
    let Some(part) = job.part(role) else {
        return Vec::new();
    };
    let groups = part.groups.iter();
    std::iter::once((None, part.replicas))
        .chain(groups.map(|(name, replicas)| (Some(name.clone()), *replicas)))
        .map(|(group, count)| ((role, group), usize::try_from(count).unwrap_or(0)))
        .collect()
}

/// The wanted entries of a bucket.
fn in_bucket<'a>(plan: &'a [PlanEntry], bucket: &'a Bucket) -> impl Iterator<Item = &'a PlanEntry> {
    plan.iter().filter(move |e| {
        e.is_wanted()
            && e.origin == Origin::Declared
            && (e.role.counted_as(), &e.group) == (bucket.0, &bucket.1)
    })
}

fn lower(draft: &mut Draft, bucket: &Bucket, by: usize) {
    if by > 0 {
        let by = i32::try_from(by).unwrap_or(i32::MAX);
        *draft.lower.entry(bucket.clone()).or_default() += by;
    }
}

#[cfg(test)]
mod tests {
    use di_api::EntryState;
    use serde_json::json;

    use super::*;
    use crate::testing::pod;

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

    fn draft(declared: usize, in_group: usize, requested: usize) -> Draft {
        let plain = (0..declared).map(|i| entry("declared", "Declared", None, i));
        let big = (0..in_group).map(|i| entry("big", "Declared", Some("big"), i));
        let requested = (0..requested).map(|i| entry("requested", "Requested", None, i));
        Draft {
            plan: plain.chain(big).chain(requested).collect(),
            ..Draft::default()
        }
    }

    fn go(job: &JobView, draft: &mut Draft, count: usize, lowered: usize) -> Vec<String> {
        let before = draft.plan.clone();
        again(job, draft, count, lowered, &before)
    }

    fn again(
        job: &JobView,
        draft: &mut Draft,
        count: usize,
        lowered: usize,
        before: &[PlanEntry],
    ) -> Vec<String> {
        let of = |bucket: &Bucket| if bucket.1.is_none() { lowered } else { 0 };
        let mut gone = let_go(job, draft, &[], Role::Collector, count, before, of);
        gone.sort();
        gone
    }

    fn lowered_by(draft: &Draft, group: Option<&str>) -> i32 {
        let bucket = (Role::Collector, group.map(str::to_owned));
        draft.lower.get(&bucket).copied().unwrap_or(0)
    }

    #[test]
    fn requested_replicas_go_before_declared_ones() {
        let mut draft = draft(2, 0, 2);
        assert_eq!(go(&job(2, 0), &mut draft, 1, 0), ["requested1"]);
        assert!(draft.lower.is_empty());
        assert_eq!(
            go(&job(2, 0), &mut draft, 2, 0),
            ["declared1", "requested0"]
        );
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
            let before = draft.plan.clone();
            let job = job(2, 0);
            let role = Role::Collector;
            let mut went = let_go(&job, &mut draft, &pods, role, count, &before, |_| 0);
            went.sort();
            assert_eq!(went, gone);
        }
    }

    #[test]
    fn replicas_of_groups_go_too_and_their_count_is_lowered() {
        let mut draft = draft(1, 2, 1);
        let gone = go(&job(1, 2), &mut draft, 3, 0);
        assert_eq!(gone, ["big0", "big1", "requested0"]);
        assert_eq!(
            (lowered_by(&draft, None), lowered_by(&draft, Some("big"))),
            (0, 2)
        );
    }

    #[test]
    fn no_more_go_than_there_are() {
        let mut draft = draft(2, 1, 1);
        assert_eq!(go(&job(2, 1), &mut draft, 9, 0).len(), 4);
        assert_eq!(
            (lowered_by(&draft, None), lowered_by(&draft, Some("big"))),
            (2, 1)
        );
    }

    #[test]
    fn another_try_lowers_nothing_twice() {
        // Lowered from 4 to 2 by an earlier try, whose status write came too late.
        let mut not_marked = draft(4, 0, 0);
        let gone = go(&job(2, 0), &mut not_marked, 2, 2);
        assert_eq!(gone, ["declared2", "declared3"]);
        assert!(not_marked.lower.is_empty());

        let mut by_the_reconciler = draft(4, 0, 0);
        let before = by_the_reconciler.plan.clone();
        for entry in &mut by_the_reconciler.plan[2..] {
            entry.state = EntryState::Removing;
        }
        let gone = again(&job(2, 0), &mut by_the_reconciler, 2, 2, &before);
        assert_eq!(gone, ["declared2", "declared3"], "they are answered");
        assert!(by_the_reconciler.lower.is_empty());
        let wanted = by_the_reconciler.plan.iter().filter(|e| e.is_wanted());
        assert_eq!(wanted.count(), 2);
    }

    #[test]
    fn declared_replicas_not_planned_yet_go_first() {
        let mut draft = draft(1, 0, 0);
        assert_eq!(go(&job(3, 0), &mut draft, 2, 0), Vec::<String>::new());
        assert_eq!(lowered_by(&draft, None), 2);
    }
}
