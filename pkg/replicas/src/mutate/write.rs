use std::collections::HashMap;

use di_api::{PlanEntry, Role};
use di_cache::JobView;
use di_plan::next_generation;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::job_change::JobChange;
use crate::{
    error::Result,
    idempotency::{
        history,
        recorded_scale_down::{self, ReplicaGroupRef, ScaleDown},
    },
    state::{JobRef, SharedState, call_api},
};

/// Writes the declared counts if they change, and then the status.
pub(super) async fn write_change(
    state: &SharedState,
    job: &JobRef,
    draft: JobChange,
) -> Result<JobRef> {
    let mut job = job.clone();
    if !draft.scale_downs.is_empty() {
        let request_key = draft.new_record.as_ref().map_or("", |record| &record.key);
        job = lower_declared_counts(state, &job, request_key, &draft.scale_downs).await?;
    }
    if draft.new_record.is_none() && draft.rolled_back_request.is_none() && draft.plan == job.plan {
        return Ok(job);
    }
    let written = call_api("write the status of the DIJob", async {
        let fields = status_fields(&job, draft, Timestamp::now());
        di_cache::write_fields(&state.client, &*job, Some("status"), fields).await
    });
    Ok(state.jobs.record_write(written.await?))
}

/// Returns the status fields to write, each a path and its value: the plan, the counts, the
/// generation of the membership and the request history.
pub(super) fn status_fields(
    job: &JobView,
    mut draft: JobChange,
    now: Timestamp,
) -> Vec<(Vec<String>, Value)> {
    // Only the reconciler begins to count.
    let generation = job.membership_generation;
    let generation = generation.map(|last| next_generation(&job.plan, &mut draft.plan, last));
    let count = |role: Role| {
        let wanted = |entry: &&PlanEntry| entry.is_wanted() && entry.counts_as(role);
        draft.plan.iter().filter(wanted).count()
    };
    let mut status = json!({
        "plan": draft.plan,
        "collectors": count(Role::Collector),
        "learners": count(Role::Learner),
    });
    if let Some(generation) = generation {
        status["membershipGeneration"] = generation.into();
    }
    if draft.new_record.is_some() || draft.rolled_back_request.is_some() {
        let mut requests = job.requests.clone();
        if let Some((kind, key)) = &draft.rolled_back_request {
            requests.retain(|record| record.kind != *kind || record.key != *key);
        }
        if let Some(record) = draft.new_record {
            history::add_record(&mut requests, record, now);
        }
        status["requests"] = json!(requests);
    }
    let root = "status".to_owned();
    match status {
        Value::Object(fields) if job.has_status => {
            let fields = fields.into_iter();
            fields
                .map(|(name, value)| (vec![root.clone(), name], value))
                .collect()
        }
        // Without a status, JSON patch cannot add a field to it.
        status => vec![(vec![root], status)],
    }
}

/// Lowers the declared counts. This is written before the status: otherwise the reconciler replaces
/// the removed replicas. See docs/decisions/0014.
async fn lower_declared_counts(
    state: &SharedState,
    job: &JobRef,
    request: &str,
    scale_downs: &HashMap<ReplicaGroupRef, ScaleDown>,
) -> Result<JobRef> {
    let counts = scale_downs
        .iter()
        .filter_map(|(group, scale_down)| declared_count_field(job, group, scale_down.by));
    let fields = counts.chain(recorded_scale_down::record_fields(
        job,
        request,
        scale_downs,
        Timestamp::now(),
    ));
    let sent = call_api("lower the declared replicas of the DIJob", async {
        di_cache::write_fields(&state.client, &**job, None, fields).await
    });
    Ok(state.jobs.record_write(sent.await?))
}

/// Returns the path of a declared count and its lowered value.
fn declared_count_field(
    job: &JobView,
    (role, group): &ReplicaGroupRef,
    by: i32,
) -> Option<(Vec<String>, Value)> {
    let part = job.role_view(*role)?;
    let mut path = vec!["spec".to_owned(), role.label().to_owned()];
    let count = match group {
        None => part.replicas,
        Some(name) => {
            let mut groups = part.groups.iter();
            let at = groups.position(|(group, _)| group == name)?;
            path.extend(["groups".to_owned(), at.to_string()]);
            part.groups[at].1
        }
    };
    path.push("replicas".to_owned());
    Some((path, count.saturating_sub(by).into()))
}
