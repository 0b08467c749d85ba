//! The changes of a job that the page offers, with the commands that do the same.

use std::sync::Arc;

use axum::{Json, extract::Request};
use di_api::names;
use di_client::{
    Cluster, Counts, DryRun, Job, Permission, ReplicaGroupRef, ScaleRequest, delete_job,
    find_refused_permissions, get_job, restart_coordinator, scale_replicas, set_suspended,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    request::{JobPath, read_json},
    shared::Shared,
};

/// A change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Deletes the pods and keeps the plan.
    Suspend,
    /// Runs the job again.
    Resume,
    /// Replaces the coordinator.
    Restart,
    /// Changes the declared counts by these differences.
    Scale(Counts),
    /// Deletes the job.
    Delete,
}

/// The last part of the path of each action, for [`build_action`].
pub(crate) const PATHS: [&str; 5] = ["suspend", "resume", "restart", "scale", "delete"];

/// The buttons of a job by name.
const BUTTONS: [(&str, Action); 8] = [
    ("suspend", Action::Suspend),
    ("resume", Action::Resume),
    ("restart", Action::Restart),
    ("addCollector", scale_by(1, 0)),
    ("removeCollector", scale_by(-1, 0)),
    ("addLearner", scale_by(0, 1)),
    ("removeLearner", scale_by(0, -1)),
    ("delete", Action::Delete),
];

const fn scale_by(collectors: i32, learners: i32) -> Action {
    Action::Scale(Counts {
        collectors,
        learners,
    })
}

const PATCH_JOBS: Permission<'static> = Permission::new("patch", (names::GROUP, "dijobs", ""));
const DELETE_JOBS: Permission<'static> = Permission::new("delete", (names::GROUP, "dijobs", ""));
const GET_PODS: Permission<'static> = Permission::new("get", ("", "pods", ""));
const LIST_PODS: Permission<'static> = Permission::new("list", ("", "pods", ""));
const GET_LOGS: Permission<'static> = Permission::new("get", ("", "pods", "log"));
const GET_PROXY: Permission<'static> = Permission::new("get", ("", "pods", "proxy"));
const PERMISSIONS: [Permission<'static>; 6] = [
    PATCH_JOBS,
    DELETE_JOBS,
    GET_PODS,
    LIST_PODS,
    GET_LOGS,
    GET_PROXY,
];
/// The permissions to show logs.
pub(crate) const LOGS: &[Permission<'static>] = &[LIST_PODS, GET_LOGS];
/// The permissions to read the status of workers.
const TRAINING: &[Permission<'static>] = &[LIST_PODS, GET_PROXY];

/// What the user may do in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The namespace.
    pub(crate) namespace: String,
    /// The permissions that the user does not have. `None` while they are not known.
    pub(crate) refused: Option<Vec<Permission<'static>>>,
    /// Whether the dashboard is read-only.
    pub(crate) read_only: bool,
}

/// Why a button is disabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Disabled {
    /// The reason, by which the page translates the message.
    pub(crate) code: &'static str,
    /// The message.
    pub(crate) message: String,
}

impl Disabled {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    fn by_end() -> Self {
        Self::new("ended", "the job has ended")
    }

    fn by_suspension() -> Self {
        Self::new("suspended", "the job is suspended")
    }
}

/// Asks the API server what the user may do. If that fails, each action is tried.
pub(crate) async fn read_refused(cluster: &Cluster) -> Vec<Permission<'static>> {
    let refused = find_refused_permissions(cluster, &PERMISSIONS).await;
    refused.unwrap_or_default()
}

impl Access {
    /// Why the user may not do what needs these permissions.
    pub(crate) fn disabled(&self, needed: &[Permission<'static>]) -> Option<Disabled> {
        let Some(refused) = &self.refused else {
            return Some(Disabled::new(
                "unknown",
                "your permissions are not known yet",
            ));
        };
        let missing = needed.iter().find(|needed| refused.contains(needed))?;
        let message = format!("you may not {missing} in namespace {}", self.namespace);
        Some(Disabled::new("forbidden", message))
    }

    /// Why the status of the workers cannot be read. Logs have no such rule: those of an ended job
    /// are kept, and those of a suspended one begin when it is resumed.
    pub(crate) fn training_disabled(&self, job: &Job) -> Option<Disabled> {
        if job.has_ended() {
            return Some(Disabled::by_end());
        }
        if job.is_suspended() {
            return Some(Disabled::by_suspension());
        }
        self.disabled(TRAINING)
    }
}

impl Action {
    fn permissions(self) -> &'static [Permission<'static>] {
        match self {
            Self::Suspend | Self::Resume | Self::Scale(_) => &[PATCH_JOBS],
            Self::Restart => &[PATCH_JOBS, GET_PODS],
            Self::Delete => &[DELETE_JOBS],
        }
    }

    /// Why the action is not possible now.
    fn disabled(self, job: &Job, access: &Access) -> Option<Disabled> {
        if access.read_only {
            return Some(Disabled::new("readOnly", "the dashboard is read-only"));
        }
        if job.metadata.deletion_timestamp.is_some() {
            return Some(Disabled::new("deleting", "the job is being deleted"));
        }
        if job.has_ended() && self != Self::Delete {
            return Some(Disabled::by_end());
        }
        let is_none = |role: &str, by: i32| {
            let is_missing = job.object["spec"][role].is_null();
            by != 0 && (is_missing || by < 0 && declared_count(job, role) <= 0)
        };
        let is_suspended = job.is_suspended();
        access.disabled(self.permissions()).or_else(|| match self {
            Self::Suspend | Self::Restart if is_suspended => Some(Disabled::by_suspension()),
            Self::Resume if !is_suspended => {
                Some(Disabled::new("notSuspended", "the job is not suspended"))
            }
            Self::Scale(by)
                if is_none("collector", by.collectors) || is_none("learner", by.learners) =>
            {
                Some(Disabled::new(
                    "none",
                    "the job has no such replicas outside of groups",
                ))
            }
            _ => None,
        })
    }

    /// The command that does the same.
    pub(crate) fn command(self, namespace: &str, name: &str) -> String {
        let command = match self {
            Self::Suspend => format!("kubectl di suspend {name}"),
            Self::Resume => format!("kubectl di resume {name}"),
            Self::Restart => format!("kubectl di restart {name}"),
            Self::Delete => format!("kubectl delete dijob {name}"),
            Self::Scale(by) => {
                let removes = by.collectors < 0 || by.learners < 0;
                let verb = if removes { "delete" } else { "add" };
                let flag = |role: &str, by: i32| match by.unsigned_abs() {
                    0 => String::new(),
                    count => format!(" --{role}s {count}"),
                };
                let collectors = flag("collector", by.collectors);
                let learners = flag("learner", by.learners);
                format!("kubectl di replicas {verb} {name}{collectors}{learners}")
            }
        };
        format!("{command} -n {namespace}")
    }

    /// Changes a job. Returns what was changed.
    async fn apply(self, cluster: &Cluster, name: &str, uid: &str) -> Result<String> {
        let dry_run = DryRun::None;
        let message = match self {
            Self::Suspend => match set_suspended(cluster, name, true, dry_run).await? {
                (_, true) => "suspended",
                (_, false) => "already suspended",
            },
            Self::Resume => match set_suspended(cluster, name, false, dry_run).await? {
                (_, true) => "resumed",
                (_, false) => "not suspended",
            },
            Self::Restart => {
                restart_coordinator(cluster, name, dry_run).await?;
                "restarted"
            }
            Self::Delete => {
                delete_job(cluster, name, uid).await?;
                "deleted"
            }
            Self::Scale(counts) => {
                let selector = ReplicaGroupRef::default();
                let request = ScaleRequest::By { counts, selector };
                let (_, scaled) = scale_replicas(cluster, name, &request, dry_run).await?;
                let scaled: Vec<_> = scaled.iter().map(ToString::to_string).collect();
                return Ok(scaled.join(", "));
            }
        };
        Ok(message.to_owned())
    }
}

/// The declared number of replicas outside of groups.
pub(crate) fn declared_count(job: &Job, role: &str) -> i64 {
    let count = &job.object["spec"][role]["replicas"];
    count.as_i64().unwrap_or(0)
}

/// The buttons of a job: all of them, with the reasons for which some are disabled.
pub(crate) fn list_buttons(job: &Job, access: &Access) -> Vec<Value> {
    let button = |(name, action): (&str, Action)| {
        json!({
            "action": name,
            "command": action.command(job.namespace(), job.name()),
            "disabled": action.disabled(job, access),
        })
    };
    BUTTONS.into_iter().map(button).collect()
}

/// The body of a request for an action.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionBody {
    /// UID of the job that the page shows.
    uid: String,
    #[serde(default)]
    collectors: i32,
    #[serde(default)]
    learners: i32,
}

/// Builds the action of one of the [`PATHS`].
fn build_action(path: &str, body: &ActionBody) -> Result<Action> {
    let (collectors, learners) = (body.collectors, body.learners);
    let is_scale = path == "scale";
    let is_one_way = collectors.signum() * learners.signum() >= 0;
    if is_scale != (collectors != 0 || learners != 0) || !is_one_way {
        let message = "scale needs collectors or learners, both added or both removed; \
                       other actions have none";
        return Err(Error::BadRequest(message.to_owned()));
    }
    Ok(match path {
        "suspend" => Action::Suspend,
        "resume" => Action::Resume,
        "restart" => Action::Restart,
        "scale" => scale_by(collectors, learners),
        "delete" => Action::Delete,
        _ => return Err(Error::NotFound),
    })
}

/// Handles a request for the action of one of the [`PATHS`].
pub(crate) async fn post_action(
    path: &'static str,
    shared: Arc<Shared>,
    job: JobPath,
    request: Request,
) -> Result<Json<Value>> {
    let body: ActionBody = read_json(request).await?;
    let action = build_action(path, &body)?;
    let JobPath { namespace, name } = &job;
    let cluster = shared.cluster.with_namespace(namespace);
    let current = get_job(&cluster, name).await?;
    if current.metadata.uid.as_ref() != Some(&body.uid) {
        let message = format!("job {name:?} was deleted and created again; nothing was changed");
        return Err(Error::Conflict(message));
    }
    let message = action.apply(&cluster, name, &body.uid).await?;
    let command = action.command(namespace, name);
    Ok(Json(json!({"message": message, "command": command})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(refused: Option<&[Permission<'static>]>) -> Access {
        Access {
            namespace: "rl".to_owned(),
            refused: refused.map(<[_]>::to_vec),
            read_only: false,
        }
    }

    /// The codes of the disabled buttons, in their order; `-` for enabled ones.
    fn codes(job: di_fixtures::Job, access: &Access) -> String {
        let buttons = list_buttons(&job.json().into(), access);
        let codes = buttons
            .iter()
            .map(|button| button["disabled"]["code"].as_str().unwrap_or("-"));
        codes.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn buttons_are_disabled_with_the_reason() {
        let job = || di_fixtures::Job::test().phase("Running").collectors(1);
        let all = access(Some(&[]));
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (job, access, expected) in [
            (job(), all.clone(), "- notSuspended - - - none none -"),
            (
                job().suspended(),
                all.clone(),
                "suspended - suspended - - none none -",
            ),
            (
                job().phase("Failed"),
                all.clone(),
                "ended ended ended ended ended ended ended -",
            ),
            (
                job().metadata(deleting),
                all.clone(),
                "deleting deleting deleting deleting deleting deleting deleting deleting",
            ),
            (
                job(),
                access(None),
                "unknown unknown unknown unknown unknown unknown unknown unknown",
            ),
            (
                job(),
                access(Some(&[PATCH_JOBS])),
                "forbidden forbidden forbidden forbidden forbidden forbidden forbidden -",
            ),
            (
                job(),
                access(Some(&[GET_PODS, DELETE_JOBS])),
                "- notSuspended forbidden - - none none forbidden",
            ),
            (
                job(),
                Access {
                    read_only: true,
                    ..all
                },
                "readOnly readOnly readOnly readOnly readOnly readOnly readOnly readOnly",
            ),
        ] {
            assert_eq!(codes(job, &access), expected, "{access:?}");
        }
    }

    #[test]
    fn missing_permission_is_named_with_its_namespace() {
        let access = access(Some(&[GET_PROXY]));
        assert_eq!(access.disabled(LOGS), None);
        let disabled = access.disabled(TRAINING).unwrap();
        assert_eq!(
            disabled.message,
            "you may not get pods/proxy in namespace rl"
        );
    }

    #[test]
    fn training_is_disabled_without_running_workers() {
        let job = || di_fixtures::Job::test().phase("Running");
        for (job, code) in [
            (job(), None),
            (job().suspended(), Some("suspended")),
            (job().phase("Failed"), Some("ended")),
        ] {
            let disabled = access(Some(&[])).training_disabled(&job.json().into());
            assert_eq!(disabled.map(|disabled| disabled.code), code);
        }
    }

    #[test]
    fn commands_do_what_the_buttons_do() {
        let commands = BUTTONS.map(|(_, action)| action.command("rl", "j"));
        assert_eq!(
            commands,
            [
                "kubectl di suspend j -n rl",
                "kubectl di resume j -n rl",
                "kubectl di restart j -n rl",
                "kubectl di replicas add j --collectors 1 -n rl",
                "kubectl di replicas delete j --collectors 1 -n rl",
                "kubectl di replicas add j --learners 1 -n rl",
                "kubectl di replicas delete j --learners 1 -n rl",
                "kubectl delete dijob j -n rl",
            ]
        );
    }

    #[test]
    fn counts_belong_to_scale_only() {
        let build = |path: &str, collectors, learners| {
            let body = ActionBody {
                uid: "u".to_owned(),
                collectors,
                learners,
            };
            build_action(path, &body).ok()
        };
        assert_eq!(build("scale", 2, 1), Some(scale_by(2, 1)));
        assert_eq!(build("scale", 0, -3), Some(scale_by(0, -3)));
        assert_eq!(build("delete", 0, 0), Some(Action::Delete));
        for (path, collectors, learners) in [
            ("scale", 0, 0),
            ("scale", 1, -1),
            ("suspend", 1, 0),
            ("rename", 0, 0),
        ] {
            assert_eq!(build(path, collectors, learners), None, "{path}");
        }
    }
}
