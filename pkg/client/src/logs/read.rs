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
    replicas::list::{owned_pods, role_of},
};

/// Maximum length of a line in bytes. Longer lines are split to bound the memory.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// LogSelection replicas of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSelection {
    /// Replicas of one role.
    Role(Role),
    /// Replica by name.
    Replica(String),
    /// All replicas.
    All,
}

/// LogSelection part of the logs.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // kubectl's flags
pub struct LogOptions {
    /// Container instead of the main container.
    pub container: Option<String>,
    /// All containers, including init containers.
    pub all_containers: bool,
    /// Follow the logs.
    pub follow: bool,
    /// Number of recent lines of each log.
    pub tail: Option<i64>,
    /// Only lines newer than this duration.
    pub since: Option<Duration>,
    /// Only lines after this time.
    pub since_time: Option<Timestamp>,
    /// The previous run of the container.
    pub previous: bool,
    /// Prefix each line with its timestamp.
    pub timestamps: bool,
    /// Yield whole lines even for a single container.
    pub whole_lines: bool,
}

/// A line of a log with its line end, or a piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Name of the pod.
    pub pod: String,
    /// LogSelection container's.
    pub container: String,
    /// The bytes of the line. May be invalid UTF-8.
    pub bytes: Vec<u8>,
}

/// Lines, and an error for each log that cannot be read. The other logs continue.
pub type LogStream = BoxStream<'static, Result<LogLine>>;

impl LogSelection {
    /// Whether the selection can match several pods at a time.
    pub fn may_match_several(&self) -> bool {
        !matches!(self, Self::Replica(_) | Self::Role(Role::Coordinator))
    }
}

/// The selected pods in order of role and name.
///
/// # Errors
/// [`Error::Refused`] if no pod matches, unless `allow_none` is set and the job has not ended.
pub async fn select_log_pods(
    cluster: &Cluster,
    job: &Job,
    selection: &LogSelection,
    allow_none: bool,
) -> Result<Vec<Pod>> {
    let pods = owned_pods(cluster, job).await?;
    match select_pods(job, pods, selection) {
        Err(_) if allow_none && !job.has_ended() => Ok(Vec::new()),
        chosen => chosen.map_err(Error::Refused),
    }
}

pub(crate) fn is_selected_pod(pod: &Pod, selection: &LogSelection) -> bool {
    match selection {
        LogSelection::Role(role) => role_of(pod) == Some(*role),
        LogSelection::Replica(name) => pod.name_any() == *name,
        LogSelection::All => true,
    }
}

fn select_pods(
    job: &Job,
    mut pods: Vec<Pod>,
    selection: &LogSelection,
) -> Result<Vec<Pod>, String> {
    pods.sort_by_key(|pod| (role_of(pod), pod.name_any()));
    let (chosen, pods): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .partition(|pod| is_selected_pod(pod, selection));
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
    Err(match selection {
        LogSelection::Role(role) => format!("job {job_name:?} has no {role} pod; {has}"),
        LogSelection::Replica(name) => format!("job {job_name:?} has no pod {name:?}; {has}"),
        LogSelection::All => format!("job {job_name:?} has no logs: {has}"),
    })
}

/// Reads the logs of pods one after the other, or concurrently with `follow`.
///
/// The log of a single container is passed on as it is read, logs of several containers by line.
pub fn read_logs(
    cluster: &Cluster,
    namespace: &str,
    pods: &[Pod],
    options: &LogOptions,
) -> LogStream {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let containers = |pod| {
        options
            .selected_containers(pod)
            .into_iter()
            .map(move |one| (pod, one))
    };
    let all: Vec<(&Pod, String)> = pods.iter().flat_map(containers).collect();
    let whole_lines = options.whole_lines || all.len() > 1;
    let streams: Vec<_> = all
        .into_iter()
        .map(|(pod, container)| {
            let params = options.log_params(container);
            open_log_stream(cluster, &api, pod.name_any(), params, whole_lines)
        })
        .collect();
    if options.follow {
        stream::select_all(streams).boxed()
    } else {
        stream::iter(streams).flatten().boxed()
    }
}

/// Opens the log of one container.
pub(crate) fn open_log_stream(
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
                Either::Left(read_lines(pod, container, Box::pin(reader), whole_lines))
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
    /// The selected containers of a pod in start order.
    pub fn selected_containers(&self, pod: &Pod) -> Vec<String> {
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

    pub(crate) fn log_params(&self, container: String) -> LogParams {
        // Round up: the server takes 0 seconds as no limit.
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
            ..LogParams::default()
        }
    }
}

fn read_lines<R: AsyncBufRead + Unpin + Send + 'static>(
    pod: String,
    container: String,
    reader: R,
    whole_lines: bool,
) -> impl futures::Stream<Item = Result<LogLine>> + Send {
    stream::unfold(Some((pod, container, reader)), move |state| async move {
        let (pod, container, mut reader) = state?;
        match read_piece(&mut reader, whole_lines).await {
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

async fn read_piece<R: AsyncBufRead + Unpin>(
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
        if end.is_some() || !whole_lines || piece.len() >= MAX_LINE_BYTES {
            return Ok(Some(piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{executor::block_on, io::BufReader};
    use serde_json::json;

    use super::*;

    fn read_all(text: &[u8], whole_lines: bool) -> Vec<Vec<u8>> {
        // A small buffer, so that lines arrive in pieces.
        let reader = BufReader::with_capacity(4, futures::io::Cursor::new(text.to_vec()));
        let lines = read_lines("p".to_owned(), "c".to_owned(), reader, whole_lines);
        block_on(lines.map(|line| line.unwrap().bytes).collect())
    }

    #[test]
    fn lines_of_several_pods_are_not_split() {
        assert_eq!(
            read_all(b"first line\n\xff\nno end", true),
            [&b"first line\n"[..], b"\xff\n", b"no end"]
        );
    }

    #[test]
    fn single_log_is_passed_on_as_read() {
        assert_eq!(
            read_all(b"50%\r100%\n", false),
            [&b"50%\r"[..], b"100%", b"\n"]
        );
    }

    #[test]
    fn line_over_maximum_is_split() {
        let pieces = read_all(&vec![b'.'; 3 * MAX_LINE_BYTES], true);
        assert_eq!(pieces.len(), 3);
    }

    #[test]
    fn selected_containers_include_init_containers() {
        let spec = json!({
            "initContainers": [{"name": "fetch"}],
            "containers": [{"name": "di-container"}, {"name": "board"}],
        });
        let pod: Pod = di_fixtures::Pod::test("p", "collector").spec(spec).build();
        let mut options = LogOptions::default();
        assert_eq!(options.selected_containers(&pod), ["di-container"]);
        options.container = Some("board".to_owned());
        assert_eq!(options.selected_containers(&pod), ["board"]);
        options.all_containers = true;
        assert_eq!(
            options.selected_containers(&pod),
            ["fetch", "di-container", "board"]
        );
    }

    #[test]
    fn log_selection_matches_role_and_name() {
        let job = Job::from(di_fixtures::Job::test().phase("Running").json());
        let pods = [
            ("j-collector-b", "collector"),
            ("j-collector-a", "collector"),
            ("j-coordinator", "coordinator"),
        ];
        let pods = pods.map(|(name, role)| di_fixtures::Pod::test(name, role).build());
        let selected_names = |selection| {
            let pods = select_pods(&job, pods.to_vec(), &selection)?;
            Ok::<Vec<_>, String>(pods.iter().map(ResourceExt::name_any).collect())
        };
        assert_eq!(
            selected_names(LogSelection::All).unwrap(),
            ["j-coordinator", "j-collector-a", "j-collector-b"]
        );
        assert_eq!(
            selected_names(LogSelection::Role(Role::Collector)).unwrap(),
            ["j-collector-a", "j-collector-b"]
        );
        assert_eq!(
            selected_names(LogSelection::Replica("x".to_owned())).unwrap_err(),
            "job \"j\" has no pod \"x\"; it has j-coordinator, j-collector-a, j-collector-b"
        );
        assert_eq!(
            select_pods(&job, Vec::new(), &LogSelection::Role(Role::Coordinator)).unwrap_err(),
            "job \"j\" has no coordinator pod; it has no pods (Running)"
        );
    }
}
