use di_api::{PlanEntry, QueueState, RequestKind};
use di_plan::remove_entry;
use jiff::Timestamp;

use super::addition::Addition;
use crate::{error::Result, idempotency::history, mutate::mutate_job};

/// Removes the plan entries of a request whose pods the API server rejects, for example by quota.
///
/// This includes entries of earlier attempts of the request. The client repeats the whole request.
/// Claimed replicas of earlier requests stay if their pods exist. Replicas that wait for quota stay,
/// so that they keep their place in the queue.
pub(super) async fn roll_back_request(addition: &Addition<'_>, began: Timestamp) -> Result<()> {
    let Addition {
        state,
        key,
        request_key,
        ..
    } = *addition;
    let pod_exists = |name: &str| {
        state
            .pods
            .read_objects(key, |pods| pods.get(name).is_some())
    };
    let rollback = mutate_job(state, key, addition.identity, |job, draft| {
        // The first attempt has recorded its time.
        let record = history::find_record(job, RequestKind::Add, request_key, Timestamp::now());
        let since = record.map_or(began, |record| record.at.0.min(began));
        let is_new = |e: &PlanEntry| e.planned_at.as_ref().is_some_and(|at| at.0 >= since);
        let of_request = draft
            .plan
            .iter()
            .filter(|e| e.is_wanted() && e.request_key.as_deref() == Some(request_key));
        let names: Vec<String> = of_request
            .filter(|e| e.queue != Some(QueueState::Waiting))
            .filter(|e| is_new(e) || !pod_exists(&e.name))
            .map(|e| e.name.clone())
            .collect();
        for name in &names {
            remove_entry(&mut draft.plan, name);
        }
        draft.rolled_back_request = Some((RequestKind::Add, request_key.to_owned()));
        Ok(())
    });
    Box::pin(rollback).await?;
    Ok(())
}
