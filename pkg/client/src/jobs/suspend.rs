use serde_json::json;

use crate::{
    Cluster, DryRun, Job, Result,
    jobs::guarded_patch::{GuardedPatch, patch_job, refuse_ended, test_field},
};

/// Suspends or resumes a job. Returns the job and whether it was changed.
///
/// # Errors
/// [`crate::Error::JobEnded`] if the job has ended.
pub async fn set_suspended(
    cluster: &Cluster,
    name: &str,
    suspend: bool,
    dry_run: DryRun,
) -> Result<(Job, bool)> {
    let path = "/spec/suspend";
    patch_job(cluster, name, dry_run, |job| {
        refuse_ended(job, "; create a new job instead")?;
        if job.is_suspended() == suspend {
            return Ok(GuardedPatch {
                operations: Vec::new(),
                outcome: false,
            });
        }
        Ok(GuardedPatch {
            operations: vec![
                test_field(job, path),
                json!({"op": "add", "path": path, "value": suspend}),
            ],
            outcome: true,
        })
    })
    .await
}
