//! Lines of logs for Python.

use std::sync::Arc;

use di_api::Role;
use di_client::{
    Error, LogLine, LogOptions, LogSelection, LogStream, Result, follow_logs, get_job, read_logs,
    select_log_pods,
};
use futures::StreamExt;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::connection::Connection;

/// An iterator over the lines of logs.
#[pyclass(frozen, module = "di_orchestrator._native")]
pub(crate) struct LogLines {
    // Before the connection, so that it is dropped before the runtime.
    lines: Mutex<LogStream>,
    /// Whether a line begins with the name of its pod.
    has_prefix: bool,
    connection: Arc<Connection>,
}

#[pymethods]
impl LogLines {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.connection.run(py, async || self.next_line().await)
    }
}

impl LogLines {
    /// Opens the logs of the replicas of a role. `all` selects all replicas.
    pub(crate) async fn open(
        connection: &Arc<Connection>,
        job: &str,
        role: &str,
        follow: bool,
    ) -> Result<Self> {
        let selection = parse_selection(role)?;
        let cluster = &connection.cluster;
        let job = get_job(cluster, job).await?;
        let pods = select_log_pods(cluster, &job, &selection, follow).await?;
        let has_prefix = pods.len() > 1 || (follow && selection.may_match_several());
        let options = LogOptions {
            follow,
            whole_lines: true,
            ..LogOptions::default()
        };
        let lines = if follow {
            follow_logs(cluster, &job, &selection, pods, &options, usize::MAX)
        } else {
            read_logs(cluster, job.namespace(), &pods, &options)
        };
        Ok(Self {
            lines: Mutex::new(lines),
            has_prefix,
            connection: Arc::clone(connection),
        })
    }

    async fn next_line(&self) -> Result<Option<String>> {
        let mut lines = self.lines.lock().await;
        loop {
            match lines.next().await {
                Some(Ok(line)) => return Ok(Some(self.format_line(&line))),
                Some(Err(error @ Error::MissingLines { .. })) => {
                    self.connection.add_warning(&error.to_string());
                }
                Some(Err(error)) => return Err(error),
                None => return Ok(None),
            }
        }
    }

    fn format_line(&self, line: &LogLine) -> String {
        let text = String::from_utf8_lossy(&line.bytes);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        if self.has_prefix {
            format!("[{}] {text}", line.pod)
        } else {
            text.to_owned()
        }
    }
}

fn parse_selection(role: &str) -> Result<LogSelection> {
    if role == "all" {
        return Ok(LogSelection::All);
    }
    let known = Role::from_label(role).map(LogSelection::Role);
    known.ok_or_else(|| {
        let roles = Role::ALL.map(Role::label).join(", ");
        Error::Refused(format!(
            "unknown role {role:?}; expected one of {roles}, all"
        ))
    })
}
