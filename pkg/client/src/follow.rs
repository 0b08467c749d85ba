mod reading;

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
    Cluster, Error, Job, JobEvent, JobQuery, LogLine, LogOptions, LogStream, Result, LogSelection,
    logs::{is_chosen, log_of},
    replicas::{is_of, pods},
    watch_jobs,
};

use reading::{MARGIN, Reading, Run};

/// The logs of these pods, and of those that take their places or come beside them, until the job has ended and so have its pods. Where a
/// stream breaks off while its container runs on, another goes on from there.
/// No more than `most` are open at a time: an error tells of each that is left out.
pub fn follow(
    cluster: &Cluster,
    job: &Job,
    which: &LogSelection,
    pods: Vec<Pod>,
    options: &LogOptions,
    most: usize,
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
        which: which.clone(),
        options: options.clone(),
        most,
        open: SelectAll::new(),
        seen: HashSet::new(),
        looks: false,
        ended: has_ended(&job.status),
    };
    for pod in pods {
        for container in options.containers(&pod) {
            // One that has not started yet is opened once it has.
            if let Some(run) = run_of(&pod, &container) {
                follower.seen.insert(run.clone());
                follower.open(Reading::new(run, pod.name_any(), container));
            } else if !has_container(&pod, &container) {
                // The server says so.
                let run = (pod.uid().unwrap_or_default(), container.clone(), 0);
                follower.open(Reading::new(run, pod.name_any(), container));
            }
        }
    }
    // Those that come later are new: all that they say is.
    follower.options.tail = None;
    follower.options.since = None;
    follower.options.since_time = None;
    stream::unfold(follower, |mut follower| async move {
        Some((follower.next().await?, follower))
    })
    .boxed()
}

struct Follower {
    cluster: Cluster,
    api: Api<Pod>,
    job: Job,
    which: LogSelection,
    options: LogOptions,
    most: usize,
    pods: BoxStream<'static, Result<Pod, watcher::Error>>,
    jobs: BoxStream<'static, Result<JobEvent>>,
    open: SelectAll<BoxStream<'static, Heard>>,
    seen: HashSet<Run>,
    /// Whether the job is looked at now and then, and not watched.
    looks: bool,
    ended: bool,
}

/// What comes of an open log.
enum Heard {
    Line(LogLine),
    /// It has ended, perhaps with an error.
    Over(Reading, Option<Error>),
}

/// An error that comes as often in a row is told of.
const MOST_ERRORS: u32 = 5;

impl Follower {
    async fn next(&mut self) -> Option<Result<crate::LogLine>> {
        loop {
            if self.ended && self.open.is_empty() {
                return None;
            }
            tokio::select! {
                heard = self.open.next(), if !self.open.is_empty() => {
                    match heard {
                        Some(Heard::Line(line)) => return Some(Ok(line)),
                        Some(Heard::Over(reading, error)) => {
                            if let Err(error) = self.go_on(reading, error).await {
                                return Some(Err(error));
                            }
                        }
                        // The last of them ended, and perhaps nothing else is to come.
                        None => {}
                    }
                }
                Some(pod) = self.pods.next() => {
                    let taken = match pod {
                        Ok(pod) => self.take(&pod),
                        Err(error) => self.missed(error),
                    };
                    if let Err(error) = taken {
                        return Some(Err(error));
                    }
                }
                event = self.jobs.next(), if !self.ended => {
                    self.ended = match event {
                        Some(Ok(JobEvent::Applied(job))) => {
                            job.metadata.uid != self.job.metadata.uid || has_ended(&job.status)
                        }
                        Some(Ok(JobEvent::Deleted(_))) | None => true,
                        // Who may not watch it may look at it.
                        Some(Err(Error::Server(status))) if status.is_forbidden() && !self.looks => {
                            self.jobs = looks(&self.cluster, &self.job);
                            self.looks = true;
                            false
                        }
                        // It goes on with what is open.
                        Some(Err(error)) => return Some(Err(error)),
                    };
                    // What ran only shortly may have come and gone between two looks.
                    if self.ended && let Err(error) = self.take_all().await {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// An error is tried again by the watch itself, and what it brings late is no less whole. But a right that is lacking will not come.
    fn missed(&mut self, error: watcher::Error) -> Result<()> {
        match refusal(error) {
            Some(status) => {
                self.pods = stream::empty().boxed();
                Err(Error::Server(status))
            }
            None => Ok(()),
        }
    }

    async fn take_all(&mut self) -> Result<()> {
        for pod in pods(&self.cluster, &self.job).await? {
            self.take(&pod)?;
        }
        Ok(())
    }

    fn take(&mut self, pod: &Pod) -> Result<()> {
        if !is_of(pod, &self.job) || !is_chosen(pod, &self.which) {
            return Ok(());
        }
        for container in self.options.containers(pod) {
            let Some(run) = run_of(pod, &container) else {
                continue;
            };
            if !self.seen.insert(run.clone()) {
                continue;
            }
            if self.open.len() >= self.most {
                return Err(Error::Logs(format!(
                    "{} is not followed: {} logs are already",
                    pod.name_any(),
                    self.most
                )));
            }
            self.open(Reading::new(run, pod.name_any(), container));
        }
        Ok(())
    }

    fn open(&mut self, reading: Reading) {
        let params = self.options.params(reading.container.clone());
        self.push(reading, params, Duration::ZERO);
    }

    /// Reads a log after a pause.
    fn push(&mut self, mut reading: Reading, params: LogParams, pause: Duration) {
        let (cluster, api) = (self.cluster.clone(), self.api.clone());
        let pod = reading.pod.clone();
        let until = reading.until;
        let log = stream::once(async move {
            sleep(pause).await;
            let mut params = params;
            // What has been written since, by the clock of the server, and a little more.
            if !pause.is_zero() {
                let past = (until.elapsed() + MARGIN).as_secs();
                params.since_seconds = Some(i64::try_from(past).unwrap_or(i64::MAX));
            }
            log_of(&cluster, &api, pod, params, true)
        });
        reading.opened = Instant::now() + pause;
        let log = stream::unfold(Some((log.flatten().boxed(), reading)), |state| async move {
            let (mut log, mut reading) = state?;
            loop {
                match log.next().await {
                    Some(Ok(line)) if reading.is_new(&line.bytes) => {
                        return Some((Heard::Line(line), Some((log, reading))));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        return Some((Heard::Over(reading, Some(error)), None));
                    }
                    None => return Some((Heard::Over(reading, None), None)),
                }
            }
        });
        self.open.push(log.boxed());
    }

    /// A stream may end before the log does: when a kubelet is restarted, a connection is idle for long, a log is rotated.
    async fn go_on(&mut self, mut reading: Reading, error: Option<Error>) -> Result<()> {
        if self.options.limit_bytes.is_some() {
            // It may have ended because that many came.
            self.ended |= matches!(self.which, LogSelection::Replica(_));
            return error.map_or(Ok(()), Err);
        }
        let refused = matches!(&error, Some(Error::Server(status)) if status.code < 500);
        let first = reading.fruitless == 0;
        let place = place_of(&self.api, &reading).await;
        // A replica's pod has no successor.
        if place == Place::Gone && matches!(self.which, LogSelection::Replica(_)) {
            self.ended = true;
        }
        match (error, place) {
            (Some(error), _) if error.is_not_found() && place == Place::Gone => return Ok(()),
            (Some(error), _) if refused && first => return Err(error),
            // What has been read, and was over before it could be opened again, has no more to say.
            (_, Place::Waiting | Place::Gone) if refused => return Ok(()),
            (Some(error), _) if reading.fruitless >= MOST_ERRORS => return Err(error),
            (Some(_), _) | (None, Place::Running) => {}
            (None, Place::Waiting | Place::Gone) => return Ok(()),
        }
        let pause = reading.again();
        let params = LogParams {
            tail_lines: None,
            since_time: None,
            ..self.options.params(reading.container.clone())
        };
        self.push(reading, params, pause);
        Ok(())
    }
}

/// A job that cannot be watched is looked at now and then.
fn looks(cluster: &Cluster, job: &Job) -> BoxStream<'static, Result<JobEvent>> {
    const EVERY: Duration = Duration::from_secs(5);
    let (cluster, last) = (cluster.within(job.namespace()), job.clone());
    stream::unfold(Some((cluster, last)), |state| async move {
        let (cluster, last) = state?;
        loop {
            sleep(EVERY).await;
            match crate::get_job(&cluster, last.name()).await {
                Ok(job) => {
                    let event = JobEvent::Applied(job.clone());
                    return Some((Ok(event), Some((cluster, job))));
                }
                Err(error) if error.is_not_found() => {
                    return Some((Ok(JobEvent::Deleted(last)), None));
                }
                Err(error @ Error::Server(_)) => return Some((Err(error), None)),
                // The server may be back for the next look.
                Err(_) => {}
            }
        }
    })
    .boxed()
}

/// What has become of a run whose log has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It goes on.
    Running,
    /// It is over, and another may come.
    Waiting,
    /// Its pod has ended, or is gone.
    Gone,
}

/// A server that does not answer is asked for the log again.
async fn place_of(api: &Api<Pod>, reading: &Reading) -> Place {
    match api.get_opt(&reading.pod).await {
        Ok(Some(pod)) if pod.uid().as_ref() == Some(&reading.run.0) => {
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            if matches!(phase, Some("Succeeded" | "Failed")) {
                Place::Gone
            } else if is_running(&pod, &reading.container)
                && run_of(&pod, &reading.container).as_ref() == Some(&reading.run)
            {
                Place::Running
            } else {
                Place::Waiting
            }
        }
        Ok(_) => Place::Gone,
        Err(_) => Place::Running,
    }
}

/// What the server said, where it does not let its caller watch.
pub(crate) fn refusal(error: watcher::Error) -> Option<Box<Status>> {
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

/// The run that a container is in, once it has started: there is nothing to read before.
fn run_of(pod: &Pod, container: &str) -> Option<Run> {
    let status = status_of(pod, container)?;
    let state = status.state.as_ref()?;
    let last = status.last_state.as_ref();
    // One that waits to be started again has a last run to read, and its number.
    let has_run = |state: &ContainerState| {
        let ended = state.terminated.as_ref();
        // Without an ID it never ran, or its kubelet has lost it: the server would refuse.
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
        serde_json::from_value(json!({
            "metadata": {"name": "j-coordinator", "uid": uid},
            "status": {"containerStatuses": [
                {"name": "sidecar", "ready": true, "restartCount": 9, "image": "", "imageID": "", "state": {"running": {}}},
                {"name": "di-container", "ready": true, "restartCount": restarts, "image": "", "imageID": "", "state": state},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_right_that_is_lacking_is_told_of() {
        let said = |code: u16, reason: &str| {
            let status = Status {
                code,
                reason: reason.to_owned(),
                ..Status::default()
            };
            watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()))
        };
        assert_eq!(refusal(said(403, "Forbidden")).unwrap().code, 403);
        assert!(refusal(said(500, "InternalError")).is_none());
        assert!(refusal(watcher::Error::NoResourceVersion).is_none());
    }

    #[test]
    fn a_run_is_told_by_its_pod_and_its_restarts_once_it_has_started() {
        let of = |pod: &Pod| run_of(pod, "di-container");
        assert_eq!(of(&pod("a", &json!({"waiting": {}}), 0)), None);
        let first = of(&pod("a", &json!({"running": {}}), 0));
        let expected = ("a".to_owned(), "di-container".to_owned(), 0);
        assert_eq!(first, Some(expected));
        // The same run, over by now.
        let ended = json!({"terminated": {"exitCode": 0, "containerID": "containerd://1"}});
        assert_eq!(of(&pod("a", &ended, 0)), first);
        let unknown = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}});
        assert_eq!(of(&pod("a", &unknown, 0)), None);
        assert_ne!(of(&pod("a", &json!({"running": {}}), 1)), first);
        let mut waiting = pod("a", &json!({"waiting": {}}), 0);
        let status = waiting.status.as_mut().unwrap();
        let containers = status.container_statuses.as_mut().unwrap();
        let last = json!({"terminated": {"exitCode": 1, "containerID": "containerd://1"}});
        containers[1].last_state = serde_json::from_value(last).unwrap();
        assert_eq!(of(&waiting), first, "its last run");
        assert_ne!(of(&pod("b", &json!({"running": {}}), 0)), first);
        assert_eq!(run_of(&Pod::default(), "di-container"), None);
    }
}
