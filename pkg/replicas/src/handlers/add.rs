mod addition;
mod aggregator_template;
mod coordinator_instance;
mod planning;
mod rollback;
mod scheduling;

use axum::{
    body::Body,
    extract::State as Extract,
    http::{HeaderMap, Uri},
    response::Response,
};
use di_api::{RequestKind, Role};
use di_cache::JobView;
use di_plan::Job;
use jiff::Timestamp;
use tokio::time::Instant;

use self::{
    addition::Addition, aggregator_template::read_aggregator_template,
    coordinator_instance::wait_for_restart_status, planning::plan_addition,
    rollback::roll_back_request,
};
use super::{
    authorize_change, message_with_ignored, read_body, reject_unknown_fields, replica_urls,
    result_message, success_response, waits_for_quota,
};
use crate::{
    authorize::source::Source,
    error::{Error, Result},
    mutate::mutate_job,
    state::{API_CALL_TIMEOUT, State},
    versions::is_legacy_path,
    wire::{AddRequest, AddedReplicas, Success},
};

/// Plans more replicas and returns their URLs, after a short wait for the scheduler's result.
#[utoipa::path(post, path = "/replicas", request_body = AddRequest,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, description = "Makes it safe to repeat the request")),
    responses((status = 200, description = "The planned replicas", body = Success<AddedReplicas>), Error),
)]
pub(crate) async fn add(
    Extract(state): Extract<State>,
    uri: Uri,
    source: Source,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let wait_deadline = scheduling_deadline(&state);
    let body = read_body(&state, body).await?;
    let request = AddRequest::parse(&body, state.settings.max_replicas_per_request)?;
    reject_unknown_fields(&uri, request.unknown_fields.as_ref())?;
    let identity = authorize_change(&state, &source, &request.requester).await?;
    let unanswered_keys = &state.unanswered_keys;
    let idempotency_key =
        unanswered_keys.key_for_request(RequestKind::Add, &source, &headers, &body)?;
    let addition = Addition::new(&state, &identity, &request, idempotency_key.key());
    let added = add_replicas(&addition, wait_deadline).await;
    let mut added = idempotency_key.complete(added)?;
    // The responses of the older version do not change.
    if is_legacy_path(uri.path()) {
        added.queued = None;
    }
    let message = result_message(request.is_empty(), "the replicas are planned");
    let message = message_with_ignored(message, request.unknown_fields.as_ref());
    success_response(&message, added)
}

/// When the wait for pods must end, so that time is left for one more call to the API server.
fn scheduling_deadline(state: &State) -> Instant {
    let timeout = state.settings.request_timeout;
    Instant::now() + timeout.saturating_sub(API_CALL_TIMEOUT)
}

/// Plans the replicas of a request and returns their URLs.
async fn add_replicas(addition: &Addition<'_>, wait_deadline: Instant) -> Result<AddedReplicas> {
    let Addition { state, key, .. } = *addition;
    let began = Timestamp::now();
    let template = read_aggregator_template(addition).await?;
    wait_for_restart_status(addition).await;
    let (job, planned) = mutate_job(state, key, addition.identity, |job, draft| {
        plan_addition(addition, &template, job, draft)
    })
    .await?;
    confirm_scheduling(addition, &job, &planned, began, wait_deadline).await?;
    let count = u64::try_from(planned.len()).unwrap_or(0);
    state.metrics.planned.inc_by(count);
    let is_queued = |(_, name): &&(Role, String)| waits_for_quota(job.plan_entries(), name);
    let queued = job.queue.map(|_| planned.iter().filter(is_queued).count());
    let planned = planned.iter().map(|(role, name)| (*role, name.as_str()));
    let replicas = replica_urls(state, key, &job, planned);
    Ok(AddedReplicas {
        replicas: replicas.with_coordinator(addition.request.requester.name()),
        queued,
    })
}

/// Waits for the pods of the planned replicas. Rolls the request back if the API server rejects
/// them. See docs/decisions/0012. Replicas that wait for quota are not confirmed: they get their pods
/// later.
async fn confirm_scheduling(
    addition: &Addition<'_>,
    job: &JobView,
    planned: &[(Role, String)],
    began: Timestamp,
    wait_deadline: Instant,
) -> Result<()> {
    let Addition { state, key, .. } = *addition;
    // Without a wait, a quota error of earlier pods says nothing about the new ones.
    if state.settings.scheduling_wait.is_zero() {
        return Ok(());
    }
    let has_quota = |(_, name): &&(Role, String)| !waits_for_quota(job.plan_entries(), name);
    let planned: Vec<_> = planned.iter().filter(has_quota).cloned().collect();
    if let Some(reason) =
        scheduling::wait_for_scheduling(state, key, job, &planned, wait_deadline).await
    {
        roll_back_request(addition, began).await?;
        return Err(Error::Unavailable(reason));
    }
    if scheduling::are_gone(state, key, &planned) {
        let reason =
            "some of the planned replicas were rolled back by another attempt of this request";
        return Err(Error::Unavailable(reason.to_owned()));
    }
    Ok(())
}
