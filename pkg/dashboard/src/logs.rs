//! The logs of a job as JSON, an object a line.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::header,
    response::{IntoResponse, Response},
};
use di_api::Role;
use di_client::{
    LogLine, LogOptions, LogSelection, follow_logs, get_job, read_logs, select_log_pods,
};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use crate::{
    error::{Error, Result},
    request::{JobPath, check_name},
    shared::Shared,
};

/// Maximum number of logs that are followed at a time, as in `kubectl di logs`.
const MAX_OPEN_LOGS: usize = 50;
/// Maximum number of lines that are sent together.
const MAX_BATCH: usize = 256;
const DEFAULT_TAIL: i64 = 200;
const MAX_TAIL: i64 = 10_000;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct LogQuery {
    role: Option<String>,
    replica: Option<String>,
    tail: Option<i64>,
    follow: Option<bool>,
    #[serde(default)]
    previous: bool,
}

impl LogQuery {
    fn selection(&self) -> Result<LogSelection> {
        if let Some(name) = &self.replica {
            check_name(name)?;
            return Ok(LogSelection::Replica(name.clone()));
        }
        let Some(label) = &self.role else {
            return Ok(LogSelection::All);
        };
        let unknown = || Error::BadRequest(format!("{label:?} is no role"));
        let role = Role::from_label(label).ok_or_else(unknown)?;
        Ok(LogSelection::Role(role))
    }

    fn options(&self) -> LogOptions {
        let tail = self.tail.unwrap_or(DEFAULT_TAIL).clamp(0, MAX_TAIL);
        LogOptions {
            // The previous run has ended.
            follow: self.follow.unwrap_or(true) && !self.previous,
            tail: Some(tail),
            previous: self.previous,
            whole_lines: true,
            ..LogOptions::default()
        }
    }
}

/// Streams the logs of a job. The API server sends more only when the page has read what it has.
pub(crate) async fn stream_logs(
    State(shared): State<Arc<Shared>>,
    job: JobPath,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Response> {
    let Query(query) = query?;
    let (selection, options) = (query.selection()?, query.options());
    let permit = shared.open_stream()?;
    let cluster = shared.cluster.with_namespace(&job.namespace);
    let job = get_job(&cluster, &job.name).await?;
    let pods = select_log_pods(&cluster, &job, &selection, options.follow).await?;
    let lines = if options.follow {
        follow_logs(&cluster, &job, &selection, pods, &options, MAX_OPEN_LOGS)
    } else {
        read_logs(&cluster, job.namespace(), &pods, &options)
    };
    let name = job.name().to_owned();
    let lines = lines.map(move |line| match line {
        Ok(line) => format_line(&name, &line),
        Err(error) => format!("{}\n", json!({"error": error.to_string()})),
    });
    let end = stream::once(async move {
        drop(permit);
        format!("{}\n", json!({"end": true}))
    });
    let batches = lines.chain(end).ready_chunks(MAX_BATCH);
    let batches = batches.map(|batch| Ok::<_, Infallible>(batch.concat()));
    let content_type = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((content_type, Body::from_stream(batches)).into_response())
}

fn format_line(job: &str, line: &LogLine) -> String {
    let text = String::from_utf8_lossy(&line.bytes);
    let text = text.trim_end_matches(['\n', '\r']);
    let role = role_in_name(job, &line.pod).map(Role::label);
    format!("{}\n", json!({"pod": line.pod, "role": role, "text": text}))
}

/// The role in the name of a pod, which is `job-role` or `job-role-suffix`.
fn role_in_name(job: &str, pod: &str) -> Option<Role> {
    let rest = pod.strip_prefix(job)?.strip_prefix('-')?;
    Role::ALL.into_iter().find(|role| {
        let suffix = rest.strip_prefix(role.label());
        suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_pod_role_and_text_without_end() {
        let line = |pod: &str, bytes: &[u8]| {
            let line = LogLine {
                pod: pod.to_owned(),
                container: "di-container".to_owned(),
                bytes: bytes.to_vec(),
            };
            format_line("a-learner", &line)
        };
        let formatted = |pod: &str, role: Option<Role>, text: &str| {
            let line = json!({"pod": pod, "role": role.map(Role::label), "text": text});
            format!("{line}\n")
        };
        let pod = "a-learner-ddp-learner-x7k2p";
        assert_eq!(
            line(pod, b"\"50 %\"\r\n"),
            formatted(pod, Some(Role::DdpLearner), "\"50 %\"")
        );
        let pod = "a-learner-coordinator";
        assert_eq!(
            line(pod, b"\xff"),
            formatted(pod, Some(Role::Coordinator), "\u{fffd}")
        );
        assert_eq!(line("other", b"x"), formatted("other", None, "x"));
    }

    #[test]
    fn query_selects_pods_and_bounds_lines() {
        let selection = |role: Option<&str>, replica: Option<&str>| {
            let query = LogQuery {
                role: role.map(str::to_owned),
                replica: replica.map(str::to_owned),
                ..LogQuery::default()
            };
            query.selection().ok()
        };
        assert_eq!(selection(None, None), Some(LogSelection::All));
        assert_eq!(
            selection(Some("ddp-learner"), None),
            Some(LogSelection::Role(Role::DdpLearner))
        );
        let replica = LogSelection::Replica("j-collector-x7k2p".to_owned());
        assert_eq!(selection(None, Some("j-collector-x7k2p")), Some(replica));
        assert_eq!(selection(Some("master"), None), None);
        assert_eq!(selection(None, Some("../x")), None);
        let options = |tail, previous| {
            let query = LogQuery {
                tail,
                previous,
                ..LogQuery::default()
            };
            let options = query.options();
            (options.tail, options.follow)
        };
        assert_eq!(options(None, false), (Some(200), true));
        assert_eq!(options(Some(i64::MAX), false), (Some(10_000), true));
        assert_eq!(options(Some(-1), true), (Some(0), false));
    }
}
