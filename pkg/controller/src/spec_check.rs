//! The one-time check of a new job, as the API server stores it: decoding drops unknown fields.
//! See docs/decisions/0011 and docs/decisions/0013.

use di_cache::Key;

use crate::{
    context::Context,
    error::Result,
    stored_job::{
        OnInvalidSpec, get_stored_job, has_started, is_suspended, report_invalid_spec, spec_errors,
    },
};

/// Fails a new job if the validator rejects its stored spec. Returns true if it failed the job.
pub(crate) async fn fail_invalid_spec(context: &Context, key: &Key) -> Result<bool> {
    let Some(job) = get_stored_job(context, key).await? else {
        return Ok(false);
    };
    if has_started(&job) || is_suspended(&job) {
        return Ok(false);
    }
    let Some(faults) = spec_errors(&job) else {
        return Ok(false);
    };
    report_invalid_spec(context, &job, &faults, OnInvalidSpec::FailJob).await?;
    Ok(true)
}
