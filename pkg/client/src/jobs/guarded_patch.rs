use std::time::Duration;

use di_api::validation;
use json_patch::{Patch, PatchOperation};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Cluster, Error, Job, Result, connection::resource::Resource, get_job};

use super::job::api_resource;

/// Attempts after write conflicts.
const MAX_ATTEMPTS: u32 = 10;
/// Mean pause between attempts, with 50 % jitter so that concurrent writers do not collide again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The value of `--dry-run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    /// The change is made.
    #[default]
    None,
    /// Nothing is sent to the server.
    Client,
    /// The server checks the change and stores nothing.
    Server,
}

/// A JSON patch of a job with `test` operations, and a description of the change.
pub(crate) struct GuardedPatch<T> {
    /// Operations of the JSON patch. Empty if no change is needed.
    pub(crate) operations: Vec<Value>,
    pub(crate) outcome: T,
}

/// Changes a job by one guarded patch.
///
/// If a tested field has changed in the meantime, the patch is computed again from the new job.
///
/// # Errors
/// [`Error::Invalid`] if the change would make the job invalid.
pub(crate) async fn patch_job<T>(
    cluster: &Cluster,
    name: &str,
    dry_run: DryRun,
    change: impl Fn(&Job) -> Result<GuardedPatch<T>>,
) -> Result<(Job, T)> {
    let api = api_resource();
    let resource = Resource::new(cluster, &api, Some(&cluster.namespace().name));
    let mut current = get_job(cluster, name).await?;
    let mut refused: Option<(Patch, Error)> = None;
    for _ in 0..MAX_ATTEMPTS {
        let GuardedPatch {
            operations,
            outcome,
        } = change(&current)?;
        if operations.is_empty() {
            return Ok((current, outcome));
        }
        let patch = build_patch(&current, operations);
        // A failed test and an invalid value have the same code (422). The same patch twice means
        // that
        // the value is invalid.
        if let Some((_, error)) = refused.take_if(|(before, _)| *before == patch) {
            return Err(error);
        }
        let changed = apply_locally(&current, &patch)?;
        if dry_run == DryRun::Client {
            return Ok((changed.into(), outcome));
        }
        let dry = dry_run == DryRun::Server;
        match resource.patch(name, patch.clone(), dry).await {
            Ok(object) => return Ok((object.into(), outcome)),
            Err(error) if may_be_conflict(&error) => refused = Some((patch, error)),
            Err(error) => return Err(error),
        }
        sleep(random_pause()).await;
        current = get_job(cluster, name).await?;
    }
    Err(too_many_conflicts(
        name,
        refused.map(|(_, error)| error).as_ref(),
    ))
}

fn random_pause() -> Duration {
    RETRY_PAUSE.mul_f64(rand::rng().random_range(0.5..1.5))
}

fn too_many_conflicts(name: &str, last: Option<&Error>) -> Error {
    let reason = last.map(|error| format!("; last error: {error}"));
    Error::Refused(format!(
        "cannot change job {name:?}: it was modified concurrently in all {MAX_ATTEMPTS} attempts; nothing was changed, try again{}",
        reason.unwrap_or_default()
    ))
}

fn may_be_conflict(error: &Error) -> bool {
    matches!(error, Error::Server(status) if matches!(status.code, 409 | 422))
}

/// Builds the patch. It tests the UID, so a new job of the same name is not changed.
fn build_patch(job: &Job, operations: Vec<Value>) -> Patch {
    let uid = json!({"op": "test", "path": "/metadata/uid", "value": job.metadata.uid});
    let operations = std::iter::once(uid).chain(operations);
    let operation = |operation| {
        serde_json::from_value::<PatchOperation>(operation).expect("this is a JSON patch operation")
    };
    Patch(operations.map(operation).collect())
}

/// Applies the patch locally and validates the result. Faults that the job already has are ignored.
fn apply_locally(job: &Job, patch: &Patch) -> Result<Value> {
    let mut object = job.object.clone();
    json_patch::patch(&mut object, patch).map_err(|error| Error::Refused(error.to_string()))?;
    let known = validation::validate_dijob(&job.object)
        .err()
        .unwrap_or_default();
    let mut faults = validation::validate_dijob_update(&job.object, &object)
        .err()
        .unwrap_or_default();
    faults.retain(|fault| !known.contains(fault));
    if faults.is_empty() {
        return Ok(object);
    }
    Err(Error::Invalid {
        name: job.name().to_owned(),
        faults: faults.iter().map(ToString::to_string).collect(),
    })
}

/// A test that a field is unchanged. For a missing field, tests the resourceVersion of the job.
pub(crate) fn test_field(job: &Job, path: &str) -> Value {
    match job.object.pointer(path) {
        Some(value) => json!({"op": "test", "path": path, "value": value}),
        None => test_resource_version(job),
    }
}

/// A test that the job is unchanged.
pub(crate) fn test_resource_version(job: &Job) -> Value {
    let version = &job.metadata.resource_version;
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})
}

/// The operations that set an annotation.
pub(crate) fn annotation_operations(job: &Job, key: &str, value: &str) -> Vec<Value> {
    if job.metadata.annotations.is_none() {
        let path = "/metadata/annotations";
        let all = json!({key: value});
        return vec![
            test_resource_version(job),
            json!({"op": "add", "path": path, "value": all}),
        ];
    }
    // Escape the key for a JSON pointer (RFC 6901).
    let path = format!(
        "/metadata/annotations/{}",
        key.replace('~', "~0").replace('/', "~1")
    );
    vec![
        test_field(job, &path),
        json!({"op": "add", "path": path, "value": value}),
    ]
}

/// Fails if the job has ended. `instead` is appended to the message.
pub(crate) fn refuse_ended(job: &Job, instead: &str) -> Result<()> {
    match job.status.phase.filter(|phase| phase.is_terminal()) {
        Some(phase) => Err(Error::JobEnded(format!(
            "job {:?} has ended ({}){instead}",
            job.name(),
            phase.as_str()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn too_many_conflicts_error_has_last_error() {
        let status = Status::failure("the object has been modified", "Conflict");
        let error = too_many_conflicts("j", Some(&Error::Server(status.boxed())));
        assert_eq!(
            error.to_string(),
            "cannot change job \"j\": it was modified concurrently in all 10 attempts; nothing was changed, try again; last error: Error from server \
             (Conflict): the object has been modified"
        );
    }
}
