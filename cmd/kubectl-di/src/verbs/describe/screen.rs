use std::fmt::{self, Display, Formatter};

use di_api::{EntryState, Phase, Reason, names};
use di_client::{Event, Job, Replica};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use crate::output::{
    age::format_age,
    colour::{Colours, Tone, tone_for_status},
    failures::{failure_line, tail_lines},
    rows::{NONE, last_seen, one_line, or_none},
};

use super::{
    cells::{Cell, Field, plain_cell},
    gang_cell::gang_cell,
    queue_fields::queue_fields,
    tree::{Line, ready_count, tree_lines},
};

/// The description of a job.
pub struct Screen<'a> {
    /// The job.
    pub job: &'a Job,
    /// The replicas of the job.
    pub replicas: &'a [Replica],
    /// The events, or the error of reading them; none if --show-events is false.
    pub events: Option<&'a Result<Vec<Event>, String>>,
    /// The position in the LocalQueue.
    pub queue_position: Option<i64>,
    /// The current time, for ages.
    pub now: Timestamp,
    /// Whether the output is coloured.
    pub colours: Colours,
}

/// The maximum number of events, the latest ones.
const MAX_EVENTS: usize = 20;
/// The maximum number of failures, the latest ones.
const MAX_FAILURES: usize = 3;
/// The maximum number of log lines of a failure.
const MAX_TAIL_LINES: usize = 5;
/// The order of conditions.
const CONDITION_ORDER: [&str; 7] = [
    "Created",
    "Running",
    "Succeeded",
    "Failed",
    "Suspended",
    "ReplicasReady",
    "Admitted",
];

impl Display for Screen<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_header(f)?;
        self.write_queue(f)?;
        self.write_conditions(f)?;
        self.write_replicas(f)?;
        self.write_failures(f)?;
        match self.events {
            None => Ok(()),
            Some(Err(why)) => writeln!(f, "Events:  {why}"),
            Some(Ok(events)) => self.write_events(f, events),
        }
    }
}

impl Screen<'_> {
    fn write_header(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (job, status) = (self.job, &self.job.status);
        let spec = &job.object["spec"];
        let created = job.metadata.creation_timestamp.as_ref().map(|at| at.0);
        let started = status.start_time.as_ref().map(|at| at.0);
        let ended = status.completion_time.as_ref().map(|at| at.0);
        let phase = status.phase.map_or(NONE, Phase::as_str);
        let restarts = match spec["backoffLimit"].as_i64() {
            Some(limit) => format!("{} (limit {limit})", status.restarts),
            None => status.restarts.to_string(),
        };
        let mut fields: Vec<Field> = vec![
            ("Name", vec![(job.name().to_owned(), None)]),
            ("Namespace", vec![(job.namespace().to_owned(), None)]),
            ("Labels", pair_cells(&job.object["metadata"]["labels"])),
            (
                "Annotations",
                pair_cells(&job.object["metadata"]["annotations"]),
            ),
            ("Created", vec![(self.format_time(created), None)]),
            ("Phase", vec![(phase.to_owned(), tone_for_status(phase))]),
        ];
        let mut add = |name, text: Option<String>, tone| {
            fields.extend(text.map(|text| (name, vec![(text, tone)])));
        };
        let tone = match status.phase {
            Some(Phase::Queued) => Tone::Warning,
            _ => Tone::Error,
        };
        add("Reason", status.reason.clone(), Some(tone));
        add(
            "Started",
            started.map(|at| self.format_time(Some(at))),
            None,
        );
        add("Ended", ended.map(|at| self.format_time(Some(at))), None);
        let duration = started.map(|started| format_age(started, ended.unwrap_or(self.now)));
        add("Duration", duration, None);
        let ready = |counts: &Option<String>| counts.as_ref().map(|n| format!("{n} ready"));
        add("Collectors", ready(&status.collectors_ready), None);
        add("Learners", ready(&status.learners_ready), None);
        if let Some((gang, tone)) = gang_cell(job) {
            add("Gang", Some(gang), tone);
        }
        add("Restarts", Some(restarts), None);
        let spec_field = |name: &str| match &spec[name] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            other => Some(other.to_string()),
        };
        let seconds = |name: &str| spec_field(name).map(|seconds| format!("{seconds}s"));
        add("Group", spec_field("group"), None);
        add("Priority Class", spec_field("priorityClassName"), None);
        add("Clean Pod Policy", spec_field("cleanPodPolicy"), None);
        add(
            "Suspend",
            spec_field("suspend").filter(|suspend| suspend == "true"),
            None,
        );
        add("Active Deadline", seconds("activeDeadlineSeconds"), None);
        add("TTL", seconds("ttlSecondsAfterFinished"), None);
        self.write_fields(f, "", fields)
    }

    fn write_queue(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut fields = queue_fields(self.job, self.queue_position);
        if fields.is_empty() {
            return Ok(());
        }
        fields.extend(self.last_eviction());
        writeln!(f, "Queue:")?;
        self.write_fields(f, "  ", fields)
    }

    /// The newest event about a quota that Kueue took back. Events expire after about an hour.
    fn last_eviction(&self) -> Option<Field> {
        let reasons = [Reason::QueuePreempted, Reason::QueueEvicted].map(Reason::as_str);
        // Events of type Normal with these reasons say that the job waits again.
        let warnings = self.events?.as_ref().ok()?.iter();
        let warnings = warnings.filter(|event| event.type_ == "Warning");
        let evictions = warnings.filter(|event| reasons.contains(&event.reason.as_str()));
        let last = evictions.max_by_key(|event| event.last)?;
        let age = last
            .last
            .map(|at| format!(", {} ago", format_age(at, self.now)));
        let text = format!(
            "{}{}: {}",
            last.reason,
            age.unwrap_or_default(),
            remove_uids(&one_line(&last.message))
        );
        Some(("Last Eviction", vec![plain_cell(text)]))
    }

    fn write_fields(&self, f: &mut Formatter<'_>, indent: &str, fields: Vec<Field>) -> fmt::Result {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 3;
        for (name, values) in fields {
            let mut name = format!("{name}:");
            for (value, tone) in values {
                let value = self.colours.paint(&value, tone);
                writeln!(f, "{indent}{name:width$}{value}")?;
                name.clear();
            }
        }
        Ok(())
    }

    fn write_conditions(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut conditions: Vec<_> = self.job.status.conditions.iter().collect();
        conditions.sort_by_key(|condition| {
            CONDITION_ORDER
                .iter()
                .position(|one| *one == condition.type_)
        });
        let rows: Vec<_> = conditions
            .into_iter()
            .map(|condition| {
                let tone = match (condition.type_.as_str(), condition.status.as_str()) {
                    ("ReplicasReady", "False") | ("Failed", "True") => Some(Tone::Error),
                    ("Admitted", "False") => Some(Tone::Warning),
                    _ => None,
                };
                vec![
                    plain_cell(&condition.type_),
                    (condition.status.clone(), tone),
                    plain_cell(&condition.reason),
                    plain_cell(format_age(condition.last_transition_time.0, self.now)),
                    plain_cell(one_line(&condition.message)),
                ]
            })
            .collect();
        self.write_table(
            f,
            "Conditions",
            &["Type", "Status", "Reason", "Age", "Message"],
            &rows,
        )
    }

    fn write_replicas(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = tree_lines(self.replicas)
            .into_iter()
            .map(|line| match line {
                Line::Heading(heading, group) => {
                    let (heading, ready) = (heading.to_owned(), ready_count(&group));
                    vec![(heading, Some(Tone::Heading)), plain_cell(ready)]
                }
                Line::Replica(branch, replica) => self.replica_cells(&branch, replica),
                Line::Folded(branch, count) => vec![plain_cell(format!("{branch}{count} ready"))],
            })
            .collect();
        let headers = [
            "Name", "Status", "Ready", "Restarts", "Index", "Node", "Age",
        ];
        self.write_table(f, "Replicas", &headers, &rows)
    }

    fn write_failures(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let failures = &self.job.status.failures;
        if failures.is_empty() {
            return Ok(());
        }
        writeln!(f, "Failures:")?;
        for failure in failures.iter().take(MAX_FAILURES) {
            writeln!(f, "  {}", failure_line(failure, self.now))?;
            for line in tail_lines(failure, MAX_TAIL_LINES) {
                writeln!(f, "      {line}")?;
            }
        }
        if failures.len() > MAX_FAILURES {
            let (name, namespace) = (self.job.name(), self.job.namespace());
            writeln!(f, "  and more: kubectl di failures {name} -n {namespace}")?;
        }
        Ok(())
    }

    fn replica_cells(&self, branch: &str, replica: &Replica) -> Vec<Cell> {
        let pod = replica.pod.as_ref();
        let since = pod.map_or(&replica.planned_at, |pod| &pod.created);
        let status = replica.display_status();
        let shown = match (replica.state, pod) {
            (EntryState::Wanted, _) | (_, None) => status.to_owned(),
            (EntryState::Removing, Some(_)) => format!("{status} (removing)"),
            (EntryState::Replaced, Some(_)) => format!("{status} (replaced)"),
        };
        vec![
            plain_cell(format!("{branch}{}", replica.name)),
            (shown, tone_for_status(status)),
            plain_cell(or_none(
                pod.map(|pod| format!("{}/{}", pod.ready, pod.containers)),
            )),
            plain_cell(or_none(pod.map(|pod| pod.restarts))),
            plain_cell(or_none(replica.index)),
            plain_cell(or_none(pod.and_then(|pod| pod.node.as_ref()))),
            plain_cell(or_none(
                since.as_ref().map(|since| format_age(since.0, self.now)),
            )),
        ]
    }

    fn write_events(&self, f: &mut Formatter<'_>, events: &[Event]) -> fmt::Result {
        let earlier = events.len().saturating_sub(MAX_EVENTS);
        let rows: Vec<_> = events
            .iter()
            .skip(earlier)
            .map(|event| {
                let tone = (event.type_ == "Warning").then_some(Tone::Warning);
                vec![
                    (event.type_.clone(), tone),
                    plain_cell(&event.reason),
                    plain_cell(last_seen(event, self.now)),
                    plain_cell(&event.source),
                    plain_cell(&event.about),
                    plain_cell(one_line(&event.message)),
                ]
            })
            .collect();
        let headers = ["Type", "Reason", "Age", "From", "Object", "Message"];
        self.write_table(f, "Events", &headers, &rows)?;
        if earlier > 0 {
            let (name, namespace) = (self.job.name(), self.job.namespace());
            writeln!(
                f,
                "  and {earlier} earlier events: kubectl di events {name} -n {namespace}"
            )?;
        }
        Ok(())
    }

    fn write_table(
        &self,
        f: &mut Formatter<'_>,
        name: &str,
        headers: &[&str],
        rows: &[Vec<Cell>],
    ) -> fmt::Result {
        if rows.is_empty() {
            return writeln!(f, "{name}:  {NONE}");
        }
        writeln!(f, "{name}:")?;
        let underlines = headers
            .iter()
            .map(|header| plain_cell("-".repeat(header.len())));
        let mut all = vec![
            headers.iter().map(plain_cell).collect(),
            underlines.collect::<Vec<_>>(),
        ];
        all.extend_from_slice(rows);
        let widths: Vec<_> = (0..headers.len())
            .map(|at| {
                all.iter()
                    .filter_map(move |row| row.get(at))
                    .map(|(text, _)| text.chars().count())
            })
            .map(|widths| widths.max().unwrap_or(0) + 2)
            .collect();
        for row in &all {
            let mut line = " ".to_owned();
            let last = row.len().saturating_sub(1);
            for (at, ((text, tone), width)) in row.iter().zip(&widths).enumerate() {
                let gap = if at == last {
                    0
                } else {
                    width - text.chars().count()
                };
                line.push(' ');
                line.push_str(&self.colours.paint(text, *tone));
                line.push_str(&" ".repeat(gap.saturating_sub(1)));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn format_time(&self, at: Option<Timestamp>) -> String {
        let Some(at) = at else {
            return NONE.to_owned();
        };
        let date = at
            .to_zoned(TimeZone::UTC)
            .strftime("%a, %d %b %Y %H:%M:%S %z");
        format!("{date} ({} ago)", format_age(at, self.now))
    }
}

/// Removes the UIDs of the preempting Workload and its job from a message of Kueue.
fn remove_uids(message: &str) -> String {
    if let Some((before, rest)) = message.split_once(" (UID: ")
        && let Some((_, after)) = rest.split_once(')')
    {
        return format!("{before}{after}");
    }
    message.to_owned()
}

fn pair_cells(map: &Value) -> Vec<Cell> {
    let pairs = map.as_object().into_iter().flatten();
    let pairs = pairs.filter(|(key, _)| !is_internal_annotation(key));
    let pairs = pairs
        .map(|(key, value)| plain_cell(format!("{key}={}", value.as_str().unwrap_or_default())));
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() {
        vec![plain_cell(NONE)]
    } else {
        pairs
    }
}

/// Whether an annotation is internal to kubectl or the orchestrator.
fn is_internal_annotation(key: &str) -> bool {
    key == "kubectl.kubernetes.io/last-applied-configuration"
        || names::JOB_ANNOTATIONS.contains(&key)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
