use std::collections::HashMap;

use axum::{body::Body, extract::State as Extract, response::Response};
use di_api::{DIJob, EntryState, Origin, Role};
use di_plan::{PodView, find, release, release_declared};

use super::{admit, check_live, read, success, urls};
use crate::{
    State,
    authorize::Source,
    error::{Error, Result},
    mutate::{Draft, mutate, plan_of},
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
    body: Body,
) -> Result<Response> {
    let body = read(&state, body).await?;
    let request = RemoveRequest::parse(&body, state.settings.max_replicas_per_job)?;
    let (key, _) = admit(&state, &source, &request.target).await?;
    let counts = [
        (Role::Collector, request.collectors),
        (Role::Learner, request.learners),
    ];
    // What was wanted before the first write: the reconciler may mark the same entries between our two.
    let mut before: HashMap<String, Role> = HashMap::new();
    let (job, gone) = mutate(&state, &key, |job, draft| {
        check_live(job)?;
        if draft.lowered.is_empty() {
            let wanted = plan_of(job).iter().filter(|entry| entry.is_wanted());
            before = wanted.map(|e| (e.name.clone(), e.role)).collect();
        }
        let pods = state.pods.of_job(&key);
        for (role, count) in counts {
            let_go(job, draft, &pods, role, count);
        }
        let mut gone: Vec<_> = before
            .iter()
            .filter(|(name, _)| {
                find(&draft.plan, name).is_none_or(|entry| entry.state == EntryState::Removing)
            })
            .map(|(name, role)| (*role, name.clone()))
            .collect();
        gone.sort();
        Ok(gone)
    })
    .await?;
    state
        .metrics
        .released
        .inc_by(u64::try_from(gone.len()).unwrap_or(0));
    let gone = gone.iter().map(|(role, name)| (*role, name.as_str()));
    success("the replicas are let go of", urls(&state, &key, &job, gone))
}

/// Requested replicas go first, then declared ones, whose declared count is lowered with them.
fn let_go(job: &DIJob, draft: &mut Draft, pods: &[PodView], role: Role, count: usize) {
    let lowered = draft.lowered.get(&role).copied().unwrap_or(0);
    let lowered = usize::try_from(lowered).unwrap_or(0);
    let left = count.saturating_sub(lowered);
    let requested = release(&mut draft.plan, pods, role, left).len();

    let declared = job.spec.declared(role).map_or(0, |part| part.replicas);
    let declared = usize::try_from(declared).unwrap_or(0);
    let further = (left - requested).min(declared);
    if further > 0 {
        let by = i32::try_from(further).unwrap_or(i32::MAX);
        draft.lower.insert(role, by);
    }
    // The reconciler may have marked what an earlier try lowered, or not have planned yet what is declared.
    let ours = |e: &&di_api::PlanEntry| {
        e.role == role && e.origin == Origin::Declared && e.group.is_none() && e.is_wanted()
    };
    let planned = draft.plan.iter().filter(ours).count();
    let surplus = planned.saturating_sub(declared - further);
    release_declared(&mut draft.plan, pods, role, surplus.min(further + lowered));
}

#[cfg(test)]
mod tests {
    use di_api::PlanEntry;
    use serde_json::json;

    use super::*;

    fn job(declared: i32) -> DIJob {
        serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "j", "namespace": "ns"},
            "spec": {"coordinator": {"template": {}}, "collector": {"template": {}, "replicas": declared}},
        }))
        .unwrap()
    }

    fn draft(declared: usize, requested: usize) -> Draft {
        let entry = |origin: &str, i: usize| -> PlanEntry {
            let name = format!("{}{i}", origin.to_lowercase());
            serde_json::from_value(
                json!({"name": name, "type": "Collector", "origin": origin, "index": i}),
            )
            .unwrap()
        };
        let all = (0..declared).map(|i| entry("Declared", i));
        Draft {
            plan: all
                .chain((0..requested).map(|i| entry("Requested", i)))
                .collect(),
            lower: HashMap::new(),
            lowered: HashMap::new(),
        }
    }

    fn left(draft: &Draft) -> Vec<&str> {
        let wanted = draft.plan.iter().filter(|entry| entry.is_wanted());
        wanted.map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn requested_replicas_go_before_declared_ones() {
        let mut draft = draft(2, 2);
        let_go(&job(2), &mut draft, &[], Role::Collector, 1);
        assert_eq!(left(&draft), ["declared0", "declared1", "requested0"]);
        assert!(draft.lower.is_empty());
        let_go(&job(2), &mut draft, &[], Role::Collector, 2);
        assert_eq!(left(&draft), ["declared0"]);
        assert_eq!(draft.lower[&Role::Collector], 1);
    }

    #[test]
    fn no_more_go_than_there_are() {
        let mut draft = draft(2, 1);
        let_go(&job(2), &mut draft, &[], Role::Collector, 9);
        assert!(left(&draft).is_empty());
        assert_eq!(draft.lower[&Role::Collector], 2);
    }

    #[test]
    fn another_try_lowers_nothing_twice() {
        // Lowered from 4 to 2 by an earlier try, whose status write came too late.
        let mut not_marked = draft(4, 0);
        not_marked.lowered.insert(Role::Collector, 2);
        let_go(&job(2), &mut not_marked, &[], Role::Collector, 2);
        assert_eq!(left(&not_marked).len(), 2);
        assert!(not_marked.lower.is_empty());

        let mut marked_by_the_reconciler = draft(2, 0);
        marked_by_the_reconciler.lowered.insert(Role::Collector, 2);
        let_go(
            &job(2),
            &mut marked_by_the_reconciler,
            &[],
            Role::Collector,
            2,
        );
        assert_eq!(left(&marked_by_the_reconciler).len(), 2);
        assert!(marked_by_the_reconciler.lower.is_empty());
    }

    #[test]
    fn declared_replicas_not_planned_yet_go_first() {
        let mut draft = draft(1, 0);
        let_go(&job(3), &mut draft, &[], Role::Collector, 2);
        assert_eq!(left(&draft), ["declared0"]);
        assert_eq!(draft.lower[&Role::Collector], 2);
    }
}
