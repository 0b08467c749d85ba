mod log_cursor;
mod run;

use std::{collections::HashSet, mem, slice, time::Duration};

use di_api::{DIJobStatus, Phase, names};
use futures::{
    StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    core::Status,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use tokio::time::{sleep, timeout};

use crate::{
    Cluster, Error, Job, JobEvent, JobQuery, LogLine, LogOptions, LogSelection, LogStream, Result,
    logs::read::{is_selected_pod, open_log_stream},
    replicas::list::{is_owned_by, owned_pods},
    watch_jobs,
};

use log_cursor::{LogCursor, Piece};
use run::{Run, RunState, has_container, read_run_state, run_of};

/// Follows the logs of these pods and of pods that are created later, until job and pods have
/// ended.
///
/// If a stream breaks while its container runs, a new stream continues after the last line. The
/// stream yields [`Error::MissingLines`] if the kubelet may have skipped some. At most `max_open`
/// logs are open at a time. The stream yields one error for all logs of `pods` beyond that, and an
/// error for each later one.
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
        left_out: 0,
        next_line: None,
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
                if follower.open.len() < max_open {
                    follower.open_log(run, pod.name_any(), container);
                } else {
                    follower.left_out += 1;
                }
            } else if !has_container(&pod, &container) {
                // Open it anyway: the API server reports the missing container.
                let run = (pod.uid().unwrap_or_default(), container.clone(), 0);
                follower.open_log(run, pod.name_any(), container);
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
    /// Number of logs beyond `max_open` that are not reported yet.
    left_out: usize,
    /// The line after a gap that was just reported.
    next_line: Option<LogLine>,
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
    /// Lines before this one may be missing, from this time on.
    LineAfterGap(Timestamp, LogLine),
    /// The stream has ended, possibly with an error.
    Ended(LogCursor, Option<Error>),
    /// The log must be opened again, to check that the kubelet has skipped no file.
    Recheck(LogCursor),
}

/// Consecutive failed attempts after which an error is reported.
const MAX_FAILED_ATTEMPTS: u32 = 5;
/// Time without a line after which a log is opened again. Kubelets before 1.27 may continue to read
/// a file that was rotated before its end was read.
const MAX_SILENCE: Duration = Duration::from_secs(60);

impl Follower {
    async fn next_line(&mut self) -> Option<Result<crate::LogLine>> {
        if let Some(line) = self.next_line.take() {
            return Some(Ok(line));
        }
        let left_out = mem::take(&mut self.left_out);
        if left_out > 0 {
            return Some(Err(Error::Refused(format!(
                "{left_out} more logs are not followed: {} logs are followed already; select a role or a replica",
                self.max_open
            ))));
        }
        loop {
            if self.ended && self.open.is_empty() {
                return None;
            }
            tokio::select! {
                event = self.open.next(), if !self.open.is_empty() => {
                    match event {
                        Some(LogEvent::Line(line)) => return Some(Ok(line)),
                        Some(LogEvent::LineAfterGap(since, line)) => {
                            let error = Error::MissingLines { pod: line.pod.clone(), since };
                            self.next_line = Some(line);
                            return Some(Err(error));
                        }
                        Some(LogEvent::Recheck(cursor)) => self.push_log(cursor, Duration::ZERO),
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
            self.open_log(run, pod.name_any(), container);
        }
        Ok(())
    }

    fn open_log(&mut self, run: Run, pod: String, container: String) {
        let cursor = LogCursor::new(run, pod, self.options.log_params(container));
        self.push_log(cursor, Duration::ZERO);
    }

    /// Opens a log after a pause.
    fn push_log(&mut self, mut cursor: LogCursor, pause: Duration) {
        let (cluster, api) = (self.cluster.clone(), self.api.clone());
        let (pod, params) = (cursor.pod.clone(), cursor.start_stream(pause));
        let log = stream::once(async move {
            sleep(pause).await;
            open_log_stream(&cluster, &api, pod, params, true)
        });
        let log = stream::unfold(Some((log.flatten().boxed(), cursor)), |state| async move {
            let (mut log, mut cursor) = state?;
            loop {
                let event = match timeout(MAX_SILENCE, log.next()).await {
                    Ok(Some(Ok(line))) => {
                        let line_of = |bytes| LogLine { bytes, ..line };
                        match cursor.read(line.bytes) {
                            Piece::New(bytes) => LogEvent::Line(line_of(bytes)),
                            Piece::AfterGap(since, bytes) => {
                                LogEvent::LineAfterGap(since, line_of(bytes))
                            }
                            Piece::Repeated => continue,
                            Piece::Recheck => return Some((LogEvent::Recheck(cursor), None)),
                        }
                    }
                    Ok(Some(Err(error))) => {
                        return Some((LogEvent::Ended(cursor, Some(error)), None));
                    }
                    Ok(None) => {
                        cursor.mark_readable();
                        return Some((LogEvent::Ended(cursor, None), None));
                    }
                    Err(_) => {
                        cursor.mark_readable();
                        return Some((LogEvent::Recheck(cursor), None));
                    }
                };
                return Some((event, Some((log, cursor))));
            }
        });
        self.open.push(log.boxed());
    }

    /// Reopens the log of an ended stream if the container still runs, or has lines that were not
    /// read.
    ///
    /// A stream ends early when the kubelet restarts, the connection is idle, or the log is
    /// rotated.
    async fn reopen(&mut self, mut cursor: LogCursor, error: Option<Error>) -> Result<()> {
        let rejected = matches!(&error, Some(Error::Server(status)) if status.code < 500);
        let is_first_attempt = cursor.failed_attempts == 0 && !cursor.was_readable();
        let state = read_run_state(&self.api, &cursor.pod, &cursor.run).await;
        // The pod of a named replica has no successor.
        if matches!(state, RunState::PodEnded | RunState::Gone)
            && matches!(self.selection, LogSelection::Replica(_))
        {
            self.ended = true;
        }
        let pause = match (error, state) {
            (Some(error), RunState::Gone) if error.is_not_found() => return Ok(()),
            (Some(error), _) if rejected && is_first_attempt => return Err(error),
            // The log of an ended run was read before.
            (Some(_), state) if rejected && state != RunState::Running => return Ok(()),
            (Some(error), RunState::Restarted) => return Err(error),
            (Some(error), _) if cursor.failed_attempts >= MAX_FAILED_ATTEMPTS => return Err(error),
            (Some(_), _) | (None, RunState::Running | RunState::Terminating) => {
                cursor.count_attempt()
            }
            // The kubelet ends the stream at the end of a file, also if a newer one has more lines.
            (None, RunState::Ended | RunState::PodEnded) if cursor.has_new_lines() => {
                Duration::ZERO
            }
            (None, _) => return Ok(()),
        };
        self.push_log(cursor, pause);
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
