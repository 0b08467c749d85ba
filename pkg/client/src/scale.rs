use std::{fmt, time::Duration};

use di_api::{ConditionType, Origin, Role, is_true};
use json_patch::Patch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{Cluster, Error, Job, Result, job, jobs, resource::Resource};

/// Others write jobs too, but nobody this often in a row.
const ATTEMPTS: u32 = 5;

/// Numbers of collectors and learners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Collectors.
    pub collectors: i32,
    /// Learners.
    pub learners: i32,
}

/// A declared count that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// Of which role.
    pub role: Role,
    /// What it was.
    pub from: i32,
    /// What it is.
    pub to: i32,
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s {} -> {}", self.role, self.from, self.to)
    }
}

/// Adds `by` to the declared counts of a job in one write, which fails if anybody changed them meanwhile, and is then tried again.
///
/// # Errors
/// [`Error::Scale`] when the job cannot have these counts.
pub async fn scale(cluster: &Cluster, name: &str, by: Counts) -> Result<(Job, Vec<Scaled>)> {
    let api = jobs::api();
    let resource = Resource::new(cluster, &api, Some(&cluster.namespace().name));
    let mut seen = job(cluster, name).await?;
    for _ in 0..ATTEMPTS {
        let changes = changes(&seen, by).map_err(Error::Scale)?;
        let patch = patch(&seen, &changes);
        let error = match resource.patch(name, patch.clone()).await {
            Ok(object) => return Ok((object.into(), changes)),
            Err(error) if may_be_conflict(&error) => error,
            Err(error) => return Err(error),
        };
        // A failed test and a refused value have the same code: only the former is worth another attempt.
        seen = job(cluster, name).await?;
        let now = self::changes(&seen, by).map_err(Error::Scale)?;
        if self::patch(&seen, &now) == patch {
            return Err(error);
        }
    }
    Err(Error::Scale(format!(
        "others changed job {name:?} {ATTEMPTS} times in a row; nothing was changed here, try again"
    )))
}

fn may_be_conflict(error: &Error) -> bool {
    matches!(error, Error::Server(status) if matches!(status.code, 409 | 422))
}

fn declared(job: &Job, role: Role) -> Option<&Value> {
    job.object["spec"]
        .get(role.label())
        .filter(|part| part.is_object())
}

fn changes(job: &Job, by: Counts) -> Result<Vec<Scaled>, String> {
    let name = job.name();
    if let Some(phase) = job.status.phase.filter(|phase| phase.is_terminal()) {
        return Err(format!("job {name:?} has ended ({})", phase.as_str()));
    }
    let mut changes = Vec::new();
    for (role, by) in [
        (Role::Collector, by.collectors),
        (Role::Learner, by.learners),
    ] {
        if by == 0 {
            continue;
        }
        let Some(part) = declared(job, role) else {
            return Err(format!(
                "job {name:?} has no {role}s: spec.{role} is not set, so there is no template to make them from"
            ));
        };
        let from = part["replicas"].as_i64().unwrap_or(0);
        let to = from + i64::from(by);
        if to < 0 {
            return Err(too_few(job, role, from, -i64::from(by)));
        }
        let out_of_range = |_| format!("{to} {role}s are more than can be counted");
        changes.push(Scaled {
            role,
            from: i32::try_from(from).map_err(out_of_range)?,
            to: i32::try_from(to).map_err(out_of_range)?,
        });
    }
    Ok(changes)
}

fn too_few(job: &Job, role: Role, declared: i64, fewer: i64) -> String {
    let requested = job
        .status
        .plan
        .iter()
        .filter(|e| e.role.counted_as() == role)
        .filter(|e| e.origin == Origin::Requested && e.is_wanted())
        .count();
    let others = match requested {
        0 => String::new(),
        n => format!("; {n} more were requested by the coordinator, which alone can let them go"),
    };
    format!(
        "cannot delete {fewer} {role}s of job {:?}: spec.{role}.replicas declares {declared}{others}",
        job.name()
    )
}

fn patch(job: &Job, changes: &[Scaled]) -> Patch {
    let mut operations = Vec::new();
    for change in changes {
        let path = format!("/spec/{}/replicas", change.role);
        if job.object.pointer(&path).is_some() {
            operations.push(json!({"op": "test", "path": path, "value": change.from}));
        } else {
            // An absent field cannot be tested; the version of the whole object can.
            let version = &job.metadata.resource_version;
            operations
                .push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
        }
        operations.push(json!({"op": "add", "path": path, "value": change.to}));
    }
    serde_json::from_value(operations.into()).expect("these are JSON patch operations")
}

/// Waits until the orchestrator has seen the job as it is, and every replica that it plans is ready.
///
/// # Errors
/// [`Error::Timeout`] when it takes longer than `timeout`, [`Error::Scale`] when the job ends.
pub async fn await_scaled(
    cluster: &Cluster,
    scaled: &Job,
    timeout: Option<Duration>,
) -> Result<()> {
    const PAUSE: Duration = Duration::from_secs(1);
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let now = job(cluster, scaled.name()).await?;
        let status = &now.status;
        let seen = status.observed_generation >= scaled.metadata.generation;
        if seen && is_true(&status.conditions, ConditionType::ReplicasReady) {
            return Ok(());
        }
        if let Some(phase) = status.phase.filter(|phase| phase.is_terminal()) {
            return Err(Error::Scale(format!(
                "job {:?} ended ({}) before its replicas were ready",
                now.name(),
                phase.as_str()
            )));
        }
        if deadline.is_some_and(|deadline| Instant::now() + PAUSE > deadline) {
            let why = status.reason.as_deref().unwrap_or("no reason given");
            return Err(Error::Timeout(format!(
                "the replicas of job {:?} to be ready ({why})",
                now.name()
            )));
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
