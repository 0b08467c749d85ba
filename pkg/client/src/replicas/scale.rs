use crate::{
    Cluster, DryRun, Error, Job, Result,
    jobs::guarded_patch::{GuardedPatch, patch_job, refuse_ended},
};

use super::{
    scale_draft::Draft,
    scale_request::{ScaleRequest, ScaledCount},
};

/// Changes the declared counts of a job by one guarded patch. Returns the changed counts.
///
/// # Errors
/// [`Error::Refused`] if the job cannot have these counts, [`Error::JobEnded`] if it has ended.
pub async fn scale_replicas(
    cluster: &Cluster,
    name: &str,
    request: &ScaleRequest,
    dry_run: DryRun,
) -> Result<(Job, Vec<ScaledCount>)> {
    patch_job(cluster, name, dry_run, |job| {
        refuse_ended(job, "; create a new job instead")?;
        compute_patch(job, request).map_err(Error::Refused)
    })
    .await
}

fn compute_patch(
    job: &Job,
    request: &ScaleRequest,
) -> Result<GuardedPatch<Vec<ScaledCount>>, String> {
    let mut draft = Draft::new(job);
    match request {
        ScaleRequest::By { counts, selector } => {
            for (role, by) in counts.by_role() {
                if by > 0 && !selector.resources_for(role).is_empty() {
                    draft.add_with_resources(role, by, selector)?;
                } else if by != 0 {
                    let group = draft.find_group(role, selector)?;
                    draft.add_to_count(role, group.as_deref(), by)?;
                }
            }
        }
        ScaleRequest::To { counts, selector } => {
            for (role, to) in counts.by_role() {
                if let Some(to) = to {
                    let group = draft.find_group(role, selector)?;
                    let from = draft.declared_count(role, group.as_deref())?;
                    draft.set_count(role, group.as_deref(), from, i64::from(to))?;
                }
            }
        }
        ScaleRequest::RemoveNamed(names) => draft.remove_named(names)?,
    }
    Ok(GuardedPatch {
        operations: draft.operations,
        outcome: draft.scaled,
    })
}

#[cfg(test)]
mod tests;
