use std::fmt::Display;

use di_client::{ContainerExit, Event, Job, QueueRow, Replica};
use jiff::Timestamp;

use crate::output::age::format_age;

/// The cell of a missing value.
pub const NONE: &str = "<none>";
const UNKNOWN: &str = "<unknown>";

pub fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

/// A text with its line breaks as spaces.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The cells of a job in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    namespace: String,
    name: String,
    phase: String,
    collectors: String,
    learners: String,
    restarts: String,
    age: String,
    gpus: String,
    reason: String,
    queue: String,
}

impl JobRow {
    pub fn new(job: &Job, now: Timestamp) -> Self {
        let status = &job.status;
        let created = job.metadata.creation_timestamp.as_ref();
        Self {
            namespace: job.namespace().to_owned(),
            name: job.name().to_owned(),
            // As in kubectl, a missing value is an empty cell.
            phase: status
                .phase
                .map(di_api::Phase::as_str)
                .unwrap_or_default()
                .to_owned(),
            collectors: status.collectors_ready.clone().unwrap_or_default(),
            learners: status.learners_ready.clone().unwrap_or_default(),
            restarts: status.restarts.to_string(),
            age: or_none(created.map(|created| format_age(created.0, now))),
            gpus: job.gpu_count().to_string(),
            reason: status.reason.clone().unwrap_or_default(),
            queue: or_none(job.queue_name()),
        }
    }

    pub fn column_headers(namespaces: bool, wide: bool) -> Vec<&'static str> {
        let mut headers = vec!["NAME", "PHASE", "COLLECTORS", "LEARNERS", "RESTARTS", "AGE"];
        if namespaces {
            headers.insert(0, "NAMESPACE");
        }
        if wide {
            headers.extend(["REASON", "GPUS", "QUEUE"]);
        }
        headers
    }

    pub fn into_cells(self, namespaces: bool, wide: bool) -> Vec<String> {
        let mut cells = Vec::new();
        cells.extend(namespaces.then_some(self.namespace));
        cells.extend([
            self.name,
            self.phase,
            self.collectors,
            self.learners,
            self.restarts,
            self.age,
        ]);
        if wide {
            cells.extend([self.reason, self.gpus, self.queue]);
        }
        cells
    }

    /// Whether two rows are equal apart from the age, which changes all the time.
    pub fn equals_except_age(&self, other: &Self) -> bool {
        let ageless = |row: &Self| Self {
            age: String::new(),
            ..row.clone()
        };
        ageless(self) == ageless(other)
    }
}

/// The column headers of [`replica_cells`].
pub fn replica_headers(wide: bool) -> Vec<&'static str> {
    let mut headers = vec![
        "NAME", "ROLE", "INDEX", "ORIGIN", "STATUS", "READY", "RESTARTS", "AGE",
    ];
    if wide {
        headers.extend(["NODE", "GPUS", "LAST EXIT", "URL", "REPLACES"]);
    }
    headers
}

/// The cells of a replica in a table.
pub fn replica_cells(replica: &Replica, now: Timestamp, wide: bool) -> Vec<String> {
    let pod = replica.pod.as_ref();
    let since = pod.map_or(&replica.planned_at, |pod| &pod.created);
    let mut cells = vec![
        replica.name.clone(),
        replica.role.to_string(),
        or_none(replica.index),
        or_none(replica.origin.map(|origin| format!("{origin:?}"))),
        replica.display_status().to_owned(),
        or_none(pod.map(|pod| format!("{}/{}", pod.ready, pod.containers))),
        or_none(pod.map(|pod| pod.restarts)),
        or_none(since.as_ref().map(|since| format_age(since.0, now))),
    ];
    if wide {
        cells.extend([
            or_none(pod.and_then(|pod| pod.node.as_ref())),
            or_none(pod.map(|pod| pod.gpus)),
            or_none(pod.and_then(|pod| pod.last_exit.as_ref().map(format_exit))),
            replica.url.clone(),
            or_none(replica.replaces.as_ref()),
        ]);
    }
    cells
}

/// The column headers of [`queue_cells`].
pub fn queue_headers(namespaces: bool, admission: bool) -> Vec<&'static str> {
    let mut headers = vec!["NAME", "QUEUE", "POSITION", "WAITING", "REASON", "MESSAGE"];
    if namespaces {
        headers.insert(0, "NAMESPACE");
    }
    if admission {
        headers.push("ADMITTED BY");
    }
    headers
}

/// The cells of a job in a queue. `admission` adds the ClusterQueue that admitted it.
pub fn queue_cells(
    row: QueueRow,
    now: Timestamp,
    namespaces: bool,
    admission: bool,
) -> Vec<String> {
    let position = match row.position {
        Some(position) => position.to_string(),
        // Gang schedulers do not report positions.
        None if row.waits && !row.waits_for_gang => UNKNOWN.to_owned(),
        None => NONE.to_owned(),
    };
    let message = queue_message(&row);
    let mut cells = Vec::new();
    cells.extend(namespaces.then_some(row.namespace));
    cells.extend([
        row.name,
        or_none(row.queue),
        position,
        or_none(row.since.map(|since| format_age(since.0, now))),
        or_none(row.reason),
        message,
    ]);
    if admission {
        cells.push(or_none(row.cluster_queue));
    }
    cells
}

/// The message of a row, for replicas with their number: `3 collectors wait: no quota`.
fn queue_message(row: &QueueRow) -> String {
    let message = one_line(&row.message);
    let replicas = row.waiting_replicas;
    let waiting = match replicas.total() {
        0 => return message,
        1 => format!("{replicas} waits"),
        _ => format!("{replicas} wait"),
    };
    if message.is_empty() {
        waiting
    } else {
        format!("{waiting}: {message}")
    }
}

/// The age of the last occurrence of an event with the count, as formatted by kubectl.
pub fn last_seen(event: &Event, now: Timestamp) -> String {
    let last = or_none(event.last.map(|last| format_age(last, now)));
    match event.first {
        Some(first) if event.count > 1 => {
            format!("{last} (x{} over {})", event.count, format_age(first, now))
        }
        _ => last,
    }
}

fn format_exit(exit: &ContainerExit) -> String {
    match &exit.reason {
        Some(reason) => format!("{reason} ({})", exit.exit_code),
        None => exit.exit_code.to_string(),
    }
}

#[cfg(test)]
mod tests;
