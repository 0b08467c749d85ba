mod log_cursor;

use std::{
    collections::HashSet,
    slice,
    time::{Duration, Instant},
};

use di_api::{DIJobStatus, Phase, names};
use futures::{
    StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::{
    Api, ResourceExt,
    core::{Status, subresource::LogParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use tokio::time::sleep;

use crate::{
    Cluster, Error, Job, JobEvent, JobQuery, LogLine, LogOptions, LogSelection, LogStream, Result,
    logs::read::{is_selected_pod, open_log_stream},
    replicas::list::{is_owned_by, owned_pods},
    watch_jobs,
};

use log_cursor::{LogCursor, OVERLAP, Run};

/// Follows the logs of these pods and of pods that are created later, until job and pods have
/// ended.
///
/// If a stream breaks while its container runs, a new stream continues at the same line. At most
/// `max_open` logs are open at a time. The stream yields an error for each log beyond that.
pub fn follow_logs(
    cluster: &Cluster,
    job: &Job,
    selection: &LogSelection,
    pods: Vec<Pod>,
    options: &LogOptions,
    max_open: usize,
) -> LogStream {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), job.namespace());
    let query = JobQuery {
        name: Some(job.name().to_owned()),
        ..JobQuery::default()
    };
    let version = job.metadata.resource_version.as_deref().unwrap_or_default();
    let mut follower = Follower {
        jobs: watch_jobs(cluster, &query, version, slice::from_ref(job)),
        pods: watcher(
            api.clone(),
            watcher::Config::default().labels(&format!("{}={}", names::labels::JOB, job.name())),
        )
        .default_backoff()
        .applied_objects()
        .boxed(),
        cluster: cluster.clone(),
        api,
        job: job.clone(),
        selection: selection.clone(),
        options: options.clone(),
        max_open,
        open: SelectAll::new(),
        seen: HashSet::new(),
        polls_job: false,
        ended: has_ended(&job.status),
    };
    for pod in pods {
        for container in options.selected_containers(&pod) {
            // A container that has not started yet is opened after its start.
            if let Some(run) = run_of(&pod, &container) {
                follower.seen.insert(run.clone());
                follower.open_log(LogCursor::new(run, pod.name_any(), container));
            } else if !has_container(&pod, &container) {
                // Open it anyway: the API server reports the missing container.
                let run = (pod.uid().unwrap_or_default(), container.clone(), 0);
                follower.open_log(LogCursor::new(run, pod.name_any(), container));
            }
        }
    }
    // Pods that are created later are new, so read their logs from the beginning.
    follower.options.tail = None;
    follower.options.since = None;
    follower.options.since_time = None;
    stream::unfold(follower, |mut follower| async move {
        Some((follower.next_line().await?, follower))
    })
    .boxed()
}

struct Follower {
    cluster: Cluster,
    api: Api<Pod>,
    job: Job,
    selection: LogSelection,
    options: LogOptions,
    max_open: usize,
    pods: BoxStream<'static, Result<Pod, watcher::Error>>,
    jobs: BoxStream<'static, Result<JobEvent>>,
    open: SelectAll<BoxStream<'static, LogEvent>>,
    seen: HashSet<Run>,
    /// Whether the job is polled instead of watched.
    polls_job: bool,
    ended: bool,
}

/// An event of an open log.
enum LogEvent {
    Line(LogLine),
    /// The stream has ended, possibly with an error.
    Ended(LogCursor, Option<Error>),
}

/// Consecutive failed attempts after which an error is reported.
const MAX_FAILED_ATTEMPTS: u32 = 5;

impl Follower {
    async fn next_line(&mut self) -> Option<Result<crate::LogLine>> {
        loop {
            if self.ended && self.open.is_empty() {
                return None;
            }
            tokio::select! {
                event = self.open.next(), if !self.open.is_empty() => {
                    match event {
                        Some(LogEvent::Line(line)) => return Some(Ok(line)),
                        Some(LogEvent::Ended(cursor, error)) => {
                            if let Err(error) = self.reopen(cursor, error).await {
                                return Some(Err(error));
                            }
                        }
                        // The last stream has ended: check whether the job has ended, too.
                        None => {}
                    }
                }
                Some(pod) = self.pods.next() => {
                    let result = match pod {
                        Ok(pod) => self.follow_pod(&pod),
                        Err(error) => self.on_watch_error(error),
                    };
                    if let Err(error) = result {
                        return Some(Err(error));
                    }
                }
                event = self.jobs.next(), if !self.ended => {
                    self.ended = match event {
                        Some(Ok(JobEvent::Applied(job))) => {
                            job.metadata.uid != self.job.metadata.uid || has_ended(&job.status)
                        }
                        Some(Ok(JobEvent::Deleted(_))) | None => true,
                        // Without permission to watch the job, poll it.
                        Some(Err(Error::Server(status))) if status.is_forbidden() && !self.polls_job => {
                            self.jobs = poll_job(&self.cluster, &self.job);
                            self.polls_job = true;
                            false
                        }
                        // The open logs continue after this error.
                        Some(Err(error)) => return Some(Err(error)),
                    };
                    // A short-lived pod may have escaped the watch, so list all pods once more.
                    if self.ended && let Err(error) = self.follow_all_pods().await {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Handles an error of the pod watch. The watch retries all errors but missing permissions.
    fn on_watch_error(&mut self, error: watcher::Error) -> Result<()> {
        match forbidden_status(error) {
            Some(status) => {
                self.pods = stream::empty().boxed();
                Err(Error::Server(status))
            }
            None => Ok(()),
        }
    }

    async fn follow_all_pods(&mut self) -> Result<()> {
        for pod in owned_pods(&self.cluster, &self.job).await? {
            self.follow_pod(&pod)?;
        }
        Ok(())
    }

    fn follow_pod(&mut self, pod: &Pod) -> Result<()> {
        if !is_owned_by(pod, &self.job) || !is_selected_pod(pod, &self.selection) {
            return Ok(());
        }
        for container in self.options.selected_containers(pod) {
            let Some(run) = run_of(pod, &container) else {
                continue;
            };
            if !self.seen.insert(run.clone()) {
                continue;
            }
            if self.open.len() >= self.max_open {
                return Err(Error::Refused(format!(
                    "log of pod {} is not followed: {} logs are followed already; raise the limit with --max-log-requests",
                    pod.name_any(),
                    self.max_open
                )));
            }
            self.open_log(LogCursor::new(run, pod.name_any(), container));
        }
        Ok(())
    }

    fn open_log(&mut self, cursor: LogCursor) {
        let params = self.options.log_params(cursor.container.clone());
        self.push_log(cursor, params, Duration::ZERO);
    }

    /// Opens a log after a pause.
    fn push_log(&mut self, mut cursor: LogCursor, params: LogParams, pause: Duration) {
        let (cluster, api) = (self.cluster.clone(), self.api.clone());
        let pod = cursor.pod.clone();
        let read_until = cursor.read_until;
        let log = stream::once(async move {
            sleep(pause).await;
            let mut params = params;
            // Read the lines since the last known time plus a margin for clock differences.
            if !pause.is_zero() {
                let past = (read_until.elapsed() + OVERLAP).as_secs();
                params.since_seconds = Some(i64::try_from(past).unwrap_or(i64::MAX));
            }
            open_log_stream(&cluster, &api, pod, params, true)
        });
        cursor.opened = Instant::now() + pause;
        let log = stream::unfold(Some((log.flatten().boxed(), cursor)), |state| async move {
            let (mut log, mut cursor) = state?;
            loop {
                match log.next().await {
                    Some(Ok(line)) if cursor.is_new(&line.bytes) => {
                        return Some((LogEvent::Line(line), Some((log, cursor))));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        return Some((LogEvent::Ended(cursor, Some(error)), None));
                    }
                    None => return Some((LogEvent::Ended(cursor, None), None)),
                }
            }
        });
        self.open.push(log.boxed());
    }

    /// Reopens the log of an ended stream if the container still runs.
    ///
    /// A stream ends early when the kubelet restarts, the connection is idle, or the log is
    /// rotated.
    async fn reopen(&mut self, mut cursor: LogCursor, error: Option<Error>) -> Result<()> {
        let rejected = matches!(&error, Some(Error::Server(status)) if status.code < 500);
        let is_first_attempt = cursor.failed_attempts == 0;
        let state = read_run_state(&self.api, &cursor).await;
        // The pod of a named replica has no successor.
        if state == RunState::Gone && matches!(self.selection, LogSelection::Replica(_)) {
            self.ended = true;
        }
        match (error, state) {
            (Some(error), _) if error.is_not_found() && state == RunState::Gone => return Ok(()),
            (Some(error), _) if rejected && is_first_attempt => return Err(error),
            // The run has ended and its log was read before.
            (_, RunState::Ended | RunState::Gone | RunState::Terminating) if rejected => {
                return Ok(());
            }
            (Some(error), _) if cursor.failed_attempts >= MAX_FAILED_ATTEMPTS => return Err(error),
            (Some(_), _) | (None, RunState::Running | RunState::Terminating) => {}
            (None, RunState::Ended | RunState::Gone) => return Ok(()),
        }
        let pause = cursor.prepare_reopen();
        let params = LogParams {
            tail_lines: None,
            since_time: None,
            ..self.options.log_params(cursor.container.clone())
        };
        self.push_log(cursor, params, pause);
        Ok(())
    }
}

/// Polls a job that cannot be watched.
fn poll_job(cluster: &Cluster, job: &Job) -> BoxStream<'static, Result<JobEvent>> {
    const POLL_INTERVAL: Duration = Duration::from_secs(5);
    let (cluster, last) = (cluster.with_namespace(job.namespace()), job.clone());
    stream::unfold(Some((cluster, last)), |state| async move {
        let (cluster, last) = state?;
        loop {
            sleep(POLL_INTERVAL).await;
            match crate::get_job(&cluster, last.name()).await {
                Ok(job) => {
                    let event = JobEvent::Applied(job.clone());
                    return Some((Ok(event), Some((cluster, job))));
                }
                Err(error) if error.is_not_found() => {
                    return Some((Ok(JobEvent::Deleted(last)), None));
                }
                Err(error @ Error::Server(_)) => return Some((Err(error), None)),
                // Retry connection errors at the next poll.
                Err(_) => {}
            }
        }
    })
    .boxed()
}

/// State of a run whose log stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    /// The container still runs.
    Running,
    /// The container still runs, but its pod is being deleted. The kubelet deletes the container
    /// and its log before it reports its end.
    Terminating,
    /// The run has ended. The container may be restarted.
    Ended,
    /// The pod has ended or is deleted.
    Gone,
}

/// Reads the state of a run. Counts as running if the API server does not answer, so the log is
/// retried.
async fn read_run_state(api: &Api<Pod>, cursor: &LogCursor) -> RunState {
    match api.get_opt(&cursor.pod).await {
        Ok(pod) => run_state(pod.as_ref(), &cursor.run),
        Err(_) => RunState::Running,
    }
}

fn run_state(pod: Option<&Pod>, run: &Run) -> RunState {
    let (uid, container, _) = run;
    let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(uid)) else {
        return RunState::Gone;
    };
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        RunState::Gone
    } else if !is_running(pod, container) || run_of(pod, container).as_ref() != Some(run) {
        RunState::Ended
    } else if pod.metadata.deletion_timestamp.is_some() {
        RunState::Terminating
    } else {
        RunState::Running
    }
}

/// The status of a watch error that means missing permission.
pub(crate) fn forbidden_status(error: watcher::Error) -> Option<Box<Status>> {
    use kube::Error::Api;
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        WatchError(status)
        | InitialListFailed(Api(status))
        | WatchStartFailed(Api(status))
        | WatchFailed(Api(status)) => Some(status).filter(|status| status.is_forbidden()),
        _ => None,
    }
}

fn has_ended(status: &DIJobStatus) -> bool {
    status.phase.is_some_and(Phase::is_terminal)
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let first = spec.init_containers.iter().flatten();
    first.chain(&spec.containers).any(|one| one.name == name)
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let first = status.init_container_statuses.iter().flatten();
    let mut all = first.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == container)
}

fn is_running(pod: &Pod, container: &str) -> bool {
    let state = status_of(pod, container).and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// The current run of a container. `None` before its start, when there is no log.
fn run_of(pod: &Pod, container: &str) -> Option<Run> {
    let status = status_of(pod, container)?;
    let state = status.state.as_ref()?;
    let last = status.last_state.as_ref();
    // A container that waits for a restart has a previous run with a readable log.
    let has_run = |state: &ContainerState| {
        let ended = state.terminated.as_ref();
        // Without a container ID the API server has no log of the run.
        ended.is_some_and(|ended| ended.container_id.as_ref().is_some_and(|id| !id.is_empty()))
    };
    let started = state.running.is_some() || has_run(state) || last.is_some_and(has_run);
    started.then(|| {
        let uid = pod.uid().unwrap_or_default();
        (uid, container.to_owned(), status.restart_count)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, state: &Value, restarts: i32) -> Pod {
        let statuses = json!([
            {"name": "sidecar", "ready": true, "restartCount": 9, "state": {"running": {}}},
            {"name": "di-container", "ready": true, "restartCount": restarts, "state": state},
        ]);
        di_fixtures::Pod::test("j-coordinator", "coordinator")
            .metadata(json!({"uid": uid}))
            .status(json!({"containerStatuses": statuses}))
            .build()
    }

    #[test]
    fn only_missing_permission_ends_pod_watch() {
        let watch_error = |code: u16, reason: &str| {
            let status = Status {
                code,
                reason: reason.to_owned(),
                ..Status::default()
            };
            watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()))
        };
        assert_eq!(
            forbidden_status(watch_error(403, "Forbidden"))
                .unwrap()
                .code,
            403
        );
        assert!(forbidden_status(watch_error(500, "InternalError")).is_none());
        assert!(forbidden_status(watcher::Error::NoResourceVersion).is_none());
    }

    #[test]
    fn run_state_follows_pod_status_and_deletion() {
        let run = ("a".to_owned(), "di-container".to_owned(), 0);
        let running = pod("a", &json!({"running": {}}), 0);
        let mut deleted = running.clone();
        deleted.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-31T12:00:00Z")).unwrap();
        let mut failed = running.clone();
        failed.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        let replaced = pod("b", &json!({"running": {}}), 0);
        for (pod, state) in [
            (Some(&running), RunState::Running),
            (Some(&deleted), RunState::Terminating),
            (Some(&pod("a", &json!({"terminated": {"exitCode": 0}}), 0)), RunState::Ended),
            (Some(&pod("a", &json!({"running": {}}), 1)), RunState::Ended),
            (Some(&failed), RunState::Gone),
            (Some(&replaced), RunState::Gone),
            (None, RunState::Gone),
        ] {
            assert_eq!(run_state(pod, &run), state, "{pod:?}");
        }
    }

    #[test]
    fn run_is_identified_by_pod_and_restart_count() {
        let run_of_pod = |pod: &Pod| run_of(pod, "di-container");
        assert_eq!(run_of_pod(&pod("a", &json!({"waiting": {}}), 0)), None);
        let first = run_of_pod(&pod("a", &json!({"running": {}}), 0));
        let expected = ("a".to_owned(), "di-container".to_owned(), 0);
        assert_eq!(first, Some(expected));
        // The same run after its end.
        let ended = json!({"terminated": {"exitCode": 0, "containerID": "containerd://1"}});
        assert_eq!(run_of_pod(&pod("a", &ended, 0)), first);
        let unknown = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}});
        assert_eq!(run_of_pod(&pod("a", &unknown, 0)), None);
        assert_ne!(run_of_pod(&pod("a", &json!({"running": {}}), 1)), first);
        let mut waiting = pod("a", &json!({"waiting": {}}), 0);
        let status = waiting.status.as_mut().unwrap();
        let containers = status.container_statuses.as_mut().unwrap();
        let last = json!({"terminated": {"exitCode": 1, "containerID": "containerd://1"}});
        containers[1].last_state = serde_json::from_value(last).unwrap();
        assert_eq!(run_of_pod(&waiting), first, "its previous run");
        assert_ne!(run_of_pod(&pod("b", &json!({"running": {}}), 0)), first);
        assert_eq!(run_of(&Pod::default(), "di-container"), None);
    }
}
