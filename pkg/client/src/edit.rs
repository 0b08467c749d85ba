use std::time::Duration;

use di_api::validation;
use json_patch::{Patch, PatchOperation};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Cluster, Error, Job, Result, job, jobs, resource::Resource};

/// Others write jobs too, but nobody this often in a row.
const ATTEMPTS: u32 = 10;
/// Between attempts, give or take a half: who writes at the same time must not do so again.
const PAUSE: Duration = Duration::from_millis(20);

/// How much of a change is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    /// All of it.
    #[default]
    None,
    /// Nothing is sent.
    Client,
    /// The server does all but keep it.
    Server,
}

/// A change of a job: what is tested, what is set, and what is told of it.
pub(crate) struct Edit<T> {
    /// Operations of a JSON patch; none where the job is as wanted.
    pub(crate) operations: Vec<Value>,
    pub(crate) told: T,
}

/// Changes a job in one write, which is refused if what it depends on has changed meanwhile, and is then thought over again.
///
/// # Errors
/// [`Error::Invalid`] when the job would not be valid any more.
pub(crate) async fn edit<T>(
    cluster: &Cluster,
    name: &str,
    dry_run: DryRun,
    change: impl Fn(&Job) -> Result<Edit<T>>,
) -> Result<(Job, T)> {
    let api = jobs::api();
    let resource = Resource::new(cluster, &api, Some(&cluster.namespace().name));
    let mut seen = job(cluster, name).await?;
    let mut refused: Option<(Patch, Error)> = None;
    for _ in 0..ATTEMPTS {
        let Edit { operations, told } = change(&seen)?;
        if operations.is_empty() {
            return Ok((seen, told));
        }
        let patch = patch(&seen, operations);
        // A failed test and a refused value have the same code: only the former is worth another attempt.
        if let Some((_, error)) = refused.take_if(|(before, _)| *before == patch) {
            return Err(error);
        }
        let changed = applied(&seen, &patch)?;
        if dry_run == DryRun::Client {
            return Ok((changed.into(), told));
        }
        let dry = dry_run == DryRun::Server;
        match resource.patch(name, patch.clone(), dry).await {
            Ok(object) => return Ok((object.into(), told)),
            Err(error) if may_be_conflict(&error) => refused = Some((patch, error)),
            Err(error) => return Err(error),
        }
        sleep(pause()).await;
        seen = job(cluster, name).await?;
    }
    Err(given_up(name, refused.map(|(_, error)| error).as_ref()))
}

fn pause() -> Duration {
    PAUSE.mul_f64(rand::rng().random_range(0.5..1.5))
}

fn given_up(name: &str, last: Option<&Error>) -> Error {
    let why = last.map(|error| format!("; the last time: {error}"));
    Error::Refused(format!(
        "others changed job {name:?} {ATTEMPTS} times in a row; nothing was changed here, try again{}",
        why.unwrap_or_default()
    ))
}

fn may_be_conflict(error: &Error) -> bool {
    matches!(error, Error::Server(status) if matches!(status.code, 409 | 422))
}

/// Only ever of this job, not of another that took its name.
fn patch(job: &Job, operations: Vec<Value>) -> Patch {
    let uid = json!({"op": "test", "path": "/metadata/uid", "value": job.metadata.uid});
    let operations = std::iter::once(uid).chain(operations);
    let operation = |operation| {
        serde_json::from_value::<PatchOperation>(operation).expect("this is a JSON patch operation")
    };
    Patch(operations.map(operation).collect())
}

/// The job as it would be, as far as can be told here. What is wrong with it already is no reason to refuse a change.
fn applied(job: &Job, patch: &Patch) -> Result<Value> {
    let mut object = job.object.clone();
    json_patch::patch(&mut object, patch).map_err(|error| Error::Refused(error.to_string()))?;
    let known = validation::dijob(&job.object).err().unwrap_or_default();
    let mut faults = validation::dijob_update(&job.object, &object)
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

/// A test that a field still is as it was seen. One that is not there cannot be tested, but the version of the whole job can.
pub(crate) fn still(job: &Job, path: &str) -> Value {
    match job.object.pointer(path) {
        Some(value) => json!({"op": "test", "path": path, "value": value}),
        None => unchanged(job),
    }
}

/// A test that nothing has changed.
pub(crate) fn unchanged(job: &Job) -> Value {
    let version = &job.metadata.resource_version;
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})
}

/// The operations that set an annotation.
pub(crate) fn annotate(job: &Job, key: &str, value: &str) -> Vec<Value> {
    if job.metadata.annotations.is_none() {
        let path = "/metadata/annotations";
        let all = json!({key: value});
        return vec![
            unchanged(job),
            json!({"op": "add", "path": path, "value": all}),
        ];
    }
    // As JSON pointers spell it.
    let path = format!(
        "/metadata/annotations/{}",
        key.replace('~', "~0").replace('/', "~1")
    );
    vec![
        still(job, &path),
        json!({"op": "add", "path": path, "value": value}),
    ]
}

/// Refuses what makes no sense once the job has ended.
pub(crate) fn refuse_ended(job: &Job, instead: &str) -> Result<()> {
    match job.status.phase.filter(|phase| phase.is_terminal()) {
        Some(phase) => Err(Error::Ended(format!(
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
    fn who_gives_up_says_why() {
        let status = Status::failure("the object has been modified", "Conflict");
        let error = given_up("j", Some(&Error::Server(status.boxed())));
        assert_eq!(
            error.to_string(),
            "others changed job \"j\" 10 times in a row; nothing was changed here, try again; the last time: Error from server \
             (Conflict): the object has been modified"
        );
    }
}
