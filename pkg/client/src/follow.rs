use std::collections::HashSet;

use di_api::{DIJobStatus, Phase, names};
use futures::{
    StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    core::Status,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};

use crate::{
    Cluster, Error, Job, JobEvent, JobQuery, LogOptions, LogStream, Result, Which,
    logs::{is_chosen, log_of},
    replicas::{is_of, pods},
    watch_jobs,
};

/// One run of a container: UID of its pod, its name and restart count.
type Run = (String, String, i32);

/// The logs of these pods, and of those that take their places or come beside them, until the job has ended and so have its pods.
/// No more than `most` are open at a time: an error tells of each that is left out.
pub fn follow(
    cluster: &Cluster,
    job: &Job,
    which: &Which,
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
        jobs: watch_jobs(cluster, &query, version),
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
        whole_lines: which.may_be_several() || options.all_containers,
        options: options.clone(),
        most,
        open: SelectAll::new(),
        seen: HashSet::new(),
        ended: has_ended(&job.status),
    };
    for pod in pods {
        for container in options.containers(&pod) {
            // One that has not started yet answers with the reason, and is opened once it has.
            follower.seen.extend(run_of(&pod, &container));
            follower.open(pod.name_any(), container);
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
    which: Which,
    whole_lines: bool,
    options: LogOptions,
    most: usize,
    pods: BoxStream<'static, Result<Pod, watcher::Error>>,
    jobs: BoxStream<'static, Result<JobEvent>>,
    open: SelectAll<LogStream>,
    seen: HashSet<Run>,
    ended: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<crate::LogLine>> {
        loop {
            if self.ended && self.open.is_empty() {
                return None;
            }
            tokio::select! {
                line = self.open.next(), if !self.open.is_empty() => {
                    // None: the last of them ended, and perhaps nothing else is to come.
                    if line.is_some() {
                        return line;
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
                        Some(Ok(JobEvent::Applied(ref job))) => {
                            job.metadata.uid != self.job.metadata.uid || has_ended(&job.status)
                        }
                        Some(Ok(JobEvent::Deleted(_)) | Err(_)) | None => true,
                    };
                    if let Some(Err(error)) = event {
                        return Some(Err(error));
                    }
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
            if !self.seen.insert(run) {
                continue;
            }
            if self.open.len() >= self.most {
                return Err(Error::Logs(format!(
                    "{} is not followed: {} logs are already",
                    pod.name_any(),
                    self.most
                )));
            }
            self.open(pod.name_any(), container);
        }
        Ok(())
    }

    fn open(&mut self, pod: String, container: String) {
        let params = self.options.params(container);
        let log = log_of(&self.cluster, &self.api, pod, params, self.whole_lines);
        self.open.push(log);
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

/// The run that a container is in, once it has started: there is nothing to read before.
fn run_of(pod: &Pod, container: &str) -> Option<Run> {
    let status = pod.status.as_ref()?;
    let first = status.init_container_statuses.iter().flatten();
    let mut all = first.chain(status.container_statuses.iter().flatten());
    let status = all.find(|status| status.name == container)?;
    let state = status.state.as_ref()?;
    let started = state.running.is_some() || state.terminated.is_some();
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
        let ended = json!({"terminated": {"exitCode": 0}});
        assert_eq!(of(&pod("a", &ended, 0)), first);
        assert_ne!(of(&pod("a", &json!({"running": {}}), 1)), first);
        assert_ne!(of(&pod("b", &json!({"running": {}}), 0)), first);
        assert_eq!(run_of(&Pod::default(), "di-container"), None);
    }
}
