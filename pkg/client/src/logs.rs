use std::{io, time::Duration};

use di_api::{Role, names};
use futures::{
    AsyncBufRead, AsyncBufReadExt, StreamExt,
    future::Either,
    stream::{self, BoxStream},
};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Api, ResourceExt, core::subresource::LogParams};

use crate::{
    Cluster, Error, Job, Result,
    replicas::{pods, role_of},
};

/// A line longer than this comes in pieces, so that one without an end cannot fill the memory.
const LONGEST_LINE: usize = 64 * 1024;

/// LogSelection replicas of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSelection {
    /// Those of one role.
    Role(Role),
    /// The one of this name.
    Replica(String),
    /// All.
    All,
}

/// LogSelection part of the logs.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // kubectl's flags
pub struct LogOptions {
    /// Container instead of the main one.
    pub container: Option<String>,
    /// Every container, those that prepare the pod included.
    pub all_containers: bool,
    /// Go on with what is still to come.
    pub follow: bool,
    /// Only this many last lines of each.
    pub tail: Option<i64>,
    /// Only what is younger.
    pub since: Option<Duration>,
    /// Only what came after.
    pub since_time: Option<Timestamp>,
    /// The container's last run instead of this one.
    pub previous: bool,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Only so many bytes of each.
    pub limit_bytes: Option<i64>,
    /// Lines come whole, also those of a single container.
    pub whole_lines: bool,
}

/// A line of a pod's log with its end, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// EventFilter.
    pub pod: String,
    /// LogSelection container's.
    pub container: String,
    /// As it was written; not always UTF-8.
    pub bytes: Vec<u8>,
}

/// Lines, and an error for each pod whose log could not be read or broke off; the others go on.
pub type LogStream = BoxStream<'static, Result<LogLine>>;

impl LogSelection {
    /// Whether there may be several at a time, now or later.
    pub fn may_match_several(&self) -> bool {
        !matches!(self, Self::Replica(_) | Self::Role(Role::Coordinator))
    }
}

/// A job's pods that have logs to read, in order.
///
/// # Errors
/// [`Error::Logs`] when there are none, unless more are to come and `may_come` says that they are waited for.
pub async fn log_pods(
    cluster: &Cluster,
    job: &Job,
    which: &LogSelection,
    may_come: bool,
) -> Result<Vec<Pod>> {
    let pods = pods(cluster, job).await?;
    match chosen(job, pods, which) {
        Err(_) if may_come && !job.has_ended() => Ok(Vec::new()),
        chosen => chosen.map_err(Error::Logs),
    }
}

pub(crate) fn is_chosen(pod: &Pod, which: &LogSelection) -> bool {
    match which {
        LogSelection::Role(role) => role_of(pod) == Some(*role),
        LogSelection::Replica(name) => pod.name_any() == *name,
        LogSelection::All => true,
    }
}

fn chosen(job: &Job, mut pods: Vec<Pod>, which: &LogSelection) -> Result<Vec<Pod>, String> {
    pods.sort_by_key(|pod| (role_of(pod), pod.name_any()));
    let (chosen, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| is_chosen(pod, which));
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let job_name = job.name();
    let phase = job
        .status
        .phase
        .map_or("no phase yet", |phase| phase.as_str());
    let has: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    let has = if has.is_empty() {
        format!("it has no pods ({phase})")
    } else {
        format!("it has {}", has.join(", "))
    };
    Err(match which {
        LogSelection::Role(role) => format!("job {job_name:?} has no {role} pod; {has}"),
        LogSelection::Replica(name) => format!("job {job_name:?} has no pod {name:?}; {has}"),
        LogSelection::All => format!("nothing to read from job {job_name:?}: {has}"),
    })
}

/// The logs of pods: one after the other, or all at once when following. A single container's come as they are read, those of several
/// by whole lines.
pub fn logs(cluster: &Cluster, namespace: &str, pods: &[Pod], options: &LogOptions) -> LogStream {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let containers = |pod| {
        options
            .containers(pod)
            .into_iter()
            .map(move |one| (pod, one))
    };
    let all: Vec<(&Pod, String)> = pods.iter().flat_map(containers).collect();
    let whole_lines = options.whole_lines || all.len() > 1;
    let streams: Vec<_> = all
        .into_iter()
        .map(|(pod, container)| {
            let params = options.params(container);
            log_of(cluster, &api, pod.name_any(), params, whole_lines)
        })
        .collect();
    if options.follow {
        stream::select_all(streams).boxed()
    } else {
        stream::iter(streams).flatten().boxed()
    }
}

/// The log of one container.
pub(crate) fn log_of(
    cluster: &Cluster,
    api: &Api<Pod>,
    pod: String,
    params: LogParams,
    whole_lines: bool,
) -> LogStream {
    let (api, cluster) = (api.clone(), cluster.clone());
    stream::once(async move {
        match api.log_stream(&pod, &params).await {
            Ok(reader) => {
                let container = params.container.unwrap_or_default();
                Either::Left(lines(pod, container, Box::pin(reader), whole_lines))
            }
            Err(error) => {
                let error = cluster.convert_error(error);
                Either::Right(stream::once(async move { Err(error) }))
            }
        }
    })
    .flatten()
    .boxed()
}

impl LogOptions {
    /// Containers of a pod whose logs are wanted, in the order in which they start.
    pub fn containers(&self, pod: &Pod) -> Vec<String> {
        if self.all_containers
            && let Some(spec) = &pod.spec
        {
            let first = spec.init_containers.iter().flatten();
            let all = first.chain(&spec.containers);
            return all.map(|container| container.name.clone()).collect();
        }
        let one = self.container.as_deref().unwrap_or(names::MAIN_CONTAINER);
        vec![one.to_owned()]
    }

    pub(crate) fn params(&self, container: String) -> LogParams {
        // Part of a second is rounded up: less than one second would mean everything.
        let seconds = |since: Duration| since.as_secs() + u64::from(since.subsec_nanos() > 0);
        LogParams {
            container: Some(container),
            follow: self.follow,
            tail_lines: self.tail,
            since_seconds: self
                .since
                .map(|since| i64::try_from(seconds(since)).unwrap_or(i64::MAX)),
            since_time: self.since_time,
            previous: self.previous,
            timestamps: self.timestamps,
            limit_bytes: self.limit_bytes,
            ..LogParams::default()
        }
    }
}

fn lines<R: AsyncBufRead + Unpin + Send + 'static>(
    pod: String,
    container: String,
    reader: R,
    whole_lines: bool,
) -> impl futures::Stream<Item = Result<LogLine>> + Send {
    stream::unfold(Some((pod, container, reader)), move |state| async move {
        let (pod, container, mut reader) = state?;
        match piece(&mut reader, whole_lines).await {
            Ok(None) => None,
            Ok(Some(bytes)) => {
                let line = LogLine {
                    pod: pod.clone(),
                    container: container.clone(),
                    bytes,
                };
                Some((Ok(line), Some((pod, container, reader))))
            }
            Err(source) => Some((Err(Error::Stream { pod, source }), None)),
        }
    })
}

async fn piece<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    whole_lines: bool,
) -> io::Result<Option<Vec<u8>>> {
    let mut piece = Vec::new();
    loop {
        let read = reader.fill_buf().await?;
        if read.is_empty() {
            return Ok((!piece.is_empty()).then_some(piece));
        }
        let end = read.iter().position(|byte| *byte == b'\n');
        let used = match end {
            Some(newline) if whole_lines => newline + 1,
            _ => read.len(),
        };
        piece.extend_from_slice(&read[..used]);
        reader.consume_unpin(used);
        if end.is_some() || !whole_lines || piece.len() >= LONGEST_LINE {
            return Ok(Some(piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{executor::block_on, io::BufReader};
    use serde_json::json;

    use super::*;

    fn read(text: &[u8], whole_lines: bool) -> Vec<Vec<u8>> {
        // A small buffer, so that lines arrive in pieces.
        let reader = BufReader::with_capacity(4, futures::io::Cursor::new(text.to_vec()));
        let lines = lines("p".to_owned(), "c".to_owned(), reader, whole_lines);
        block_on(lines.map(|line| line.unwrap().bytes).collect())
    }

    #[test]
    fn lines_of_several_pods_stay_whole() {
        assert_eq!(
            read(b"first line\n\xff\nno end", true),
            [&b"first line\n"[..], b"\xff\n", b"no end"]
        );
    }

    #[test]
    fn a_single_pods_log_comes_as_it_is_read() {
        assert_eq!(read(b"50%\r100%\n", false), [&b"50%\r"[..], b"100%", b"\n"]);
    }

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let pieces = read(&vec![b'.'; 3 * LONGEST_LINE], true);
        assert_eq!(pieces.len(), 3);
    }

    #[test]
    fn all_containers_are_those_that_prepare_too() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [{"name": "fetch"}],
            "containers": [{"name": "di-container"}, {"name": "board"}],
        }}))
        .unwrap();
        let mut options = LogOptions::default();
        assert_eq!(options.containers(&pod), ["di-container"]);
        options.container = Some("board".to_owned());
        assert_eq!(options.containers(&pod), ["board"]);
        options.all_containers = true;
        assert_eq!(options.containers(&pod), ["fetch", "di-container", "board"]);
    }

    fn pod(name: &str, role: &str) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"replica-type": role}}}),
        )
        .unwrap()
    }

    #[test]
    fn pods_are_chosen_by_role_and_name() {
        let job = Job::from(json!({"metadata": {"name": "j"}, "status": {"phase": "Running"}}));
        let pods = vec![
            pod("j-collector-b", "collector"),
            pod("j-collector-a", "collector"),
            pod("j-coordinator", "coordinator"),
        ];
        let choose = |which| {
            let pods = chosen(&job, pods.clone(), &which)?;
            Ok::<Vec<_>, String>(pods.iter().map(ResourceExt::name_any).collect())
        };
        assert_eq!(
            choose(LogSelection::All).unwrap(),
            ["j-coordinator", "j-collector-a", "j-collector-b"]
        );
        assert_eq!(
            choose(LogSelection::Role(Role::Collector)).unwrap(),
            ["j-collector-a", "j-collector-b"]
        );
        assert_eq!(
            choose(LogSelection::Replica("x".to_owned())).unwrap_err(),
            "job \"j\" has no pod \"x\"; it has j-coordinator, j-collector-a, j-collector-b"
        );
        assert_eq!(
            chosen(&job, Vec::new(), &LogSelection::Role(Role::Coordinator)).unwrap_err(),
            "job \"j\" has no coordinator pod; it has no pods (Running)"
        );
    }
}
