use serde_json::json;

use crate::{
    Cluster, DryRun, Job, Result,
    edit::{Edit, edit, refuse_ended, still},
};

/// Holds a job, or lets it go on; whether that changes anything comes with the job.
///
/// # Errors
/// [`crate::Error::Ended`] when the job has ended.
pub async fn suspend(
    cluster: &Cluster,
    name: &str,
    held: bool,
    dry_run: DryRun,
) -> Result<(Job, bool)> {
    let path = "/spec/suspend";
    edit(cluster, name, dry_run, |job| {
        refuse_ended(job, "; create a new one instead")?;
        if job.is_held() == held {
            return Ok(Edit {
                operations: Vec::new(),
                told: false,
            });
        }
        Ok(Edit {
            operations: vec![
                still(job, path),
                json!({"op": "add", "path": path, "value": held}),
            ],
            told: true,
        })
    })
    .await
}
