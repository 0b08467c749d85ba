use std::fmt::{self, Display, Formatter};

use di_api::{EntryState, names};
use di_client::{Event, Job, Replica};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use crate::{
    age::age,
    colour::{Colours, Tone, tone_of},
};

use super::tree::{Line, lines, ready};

/// What is shown of a job.
pub struct Screen<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its replicas.
    pub replicas: &'a [Replica],
    /// Its events, or why there are none to show; none where they are not wanted.
    pub events: Option<&'a Result<Vec<Event>, String>>,
    /// What ages are counted to.
    pub now: Timestamp,
    /// Whether it is coloured.
    pub colours: Colours,
}

const NONE: &str = "<none>";
/// Of a job that runs for days, so many events are enough for one screen.
const LATEST: usize = 20;
/// Conditions as a job's life has them.
const ORDER: [&str; 6] = [
    "Created",
    "Running",
    "Succeeded",
    "Failed",
    "Suspended",
    "ReplicasReady",
];

/// A text, and how it is meant.
type Cell = (String, Option<Tone>);

impl Display for Screen<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.conditions(f)?;
        self.tree(f)?;
        match self.events {
            None => Ok(()),
            Some(Err(why)) => writeln!(f, "Events:  {why}"),
            Some(Ok(events)) => self.told(f, events),
        }
    }
}

impl Screen<'_> {
    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (job, status) = (self.job, &self.job.status);
        let spec = &job.object["spec"];
        let created = job.metadata.creation_timestamp.as_ref().map(|at| at.0);
        let started = status.start_time.as_ref().map(|at| at.0);
        let ended = status.completion_time.as_ref().map(|at| at.0);
        let phase = status.phase.map_or(NONE, di_api::Phase::as_str);
        let restarts = match spec["backoffLimit"].as_i64() {
            Some(limit) => format!("{} (limit {limit})", status.restarts),
            None => status.restarts.to_string(),
        };
        let mut fields: Vec<(&str, Vec<Cell>)> = vec![
            ("Name", vec![(job.name().to_owned(), None)]),
            ("Namespace", vec![(job.namespace().to_owned(), None)]),
            ("Labels", pairs(&job.object["metadata"]["labels"])),
            ("Annotations", pairs(&job.object["metadata"]["annotations"])),
            ("Created", vec![(self.time(created), None)]),
            ("Phase", vec![(phase.to_owned(), tone_of(phase))]),
        ];
        let mut add = |name, text: Option<String>, tone| {
            fields.extend(text.map(|text| (name, vec![(text, tone)])));
        };
        add("Reason", status.reason.clone(), Some(Tone::Bad));
        add("Started", started.map(|at| self.time(Some(at))), None);
        add("Ended", ended.map(|at| self.time(Some(at))), None);
        let duration = started.map(|started| age(started, ended.unwrap_or(self.now)));
        add("Duration", duration, None);
        let ready = |counts: &Option<String>| counts.as_ref().map(|n| format!("{n} ready"));
        add("Collectors", ready(&status.collectors_ready), None);
        add("Learners", ready(&status.learners_ready), None);
        add("Restarts", Some(restarts), None);
        let told = |name: &str| match &spec[name] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            other => Some(other.to_string()),
        };
        let seconds = |name: &str| told(name).map(|seconds| format!("{seconds}s"));
        add("Group", told("group"), None);
        add("Priority Class", told("priorityClassName"), None);
        add("Clean Pod Policy", told("cleanPodPolicy"), None);
        add(
            "Suspend",
            told("suspend").filter(|held| held == "true"),
            None,
        );
        add("Active Deadline", seconds("activeDeadlineSeconds"), None);
        add("TTL", seconds("ttlSecondsAfterFinished"), None);
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 3;
        for (name, values) in fields {
            let mut name = format!("{name}:");
            for (value, tone) in values {
                writeln!(f, "{name:width$}{}", self.colours.paint(&value, tone))?;
                name.clear();
            }
        }
        Ok(())
    }

    fn conditions(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut conditions: Vec<_> = self.job.status.conditions.iter().collect();
        conditions.sort_by_key(|condition| ORDER.iter().position(|one| *one == condition.type_));
        let rows: Vec<_> = conditions
            .into_iter()
            .map(|condition| {
                let is_false = condition.status == "False" && condition.type_ == "ReplicasReady";
                let is_bad = condition.status == "True" && condition.type_ == "Failed";
                let tone = (is_false || is_bad).then_some(Tone::Bad);
                vec![
                    plain(&condition.type_),
                    (condition.status.clone(), tone),
                    plain(&condition.reason),
                    plain(age(condition.last_transition_time.0, self.now)),
                    plain(one_line(&condition.message)),
                ]
            })
            .collect();
        self.table(
            f,
            "Conditions",
            &["Type", "Status", "Reason", "Age", "Message"],
            &rows,
        )
    }

    fn tree(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = lines(self.replicas)
            .into_iter()
            .map(|line| match line {
                Line::Heading(heading, group) => {
                    let (heading, ready) = (heading.to_owned(), ready(&group));
                    vec![(heading, Some(Tone::Bold)), plain(ready)]
                }
                Line::Replica(branch, replica) => self.replica(&branch, replica),
                Line::Folded(branch, count) => vec![plain(format!("{branch}{count} ready"))],
            })
            .collect();
        let headers = [
            "Name", "Status", "Ready", "Restarts", "Index", "Node", "Age",
        ];
        self.table(f, "Replicas", &headers, &rows)
    }

    fn replica(&self, branch: &str, replica: &Replica) -> Vec<Cell> {
        let pod = replica.pod.as_ref();
        let since = pod.map_or(&replica.planned_at, |pod| &pod.created);
        let status = replica.status();
        let shown = match (replica.state, pod) {
            (EntryState::Wanted, _) | (_, None) => status.to_owned(),
            (EntryState::Removing, Some(_)) => format!("{status} (removing)"),
            (EntryState::Replaced, Some(_)) => format!("{status} (replaced)"),
        };
        vec![
            plain(format!("{branch}{}", replica.name)),
            (shown, tone_of(status)),
            plain(or_none(
                pod.map(|pod| format!("{}/{}", pod.ready, pod.containers)),
            )),
            plain(or_none(pod.map(|pod| pod.restarts))),
            plain(or_none(replica.index)),
            plain(or_none(pod.and_then(|pod| pod.node.as_ref()))),
            plain(or_none(since.as_ref().map(|since| age(since.0, self.now)))),
        ]
    }

    fn told(&self, f: &mut Formatter<'_>, events: &[Event]) -> fmt::Result {
        let earlier = events.len().saturating_sub(LATEST);
        let rows: Vec<_> = events
            .iter()
            .skip(earlier)
            .map(|event| {
                let tone = (event.type_ == "Warning").then_some(Tone::Doubtful);
                vec![
                    (event.type_.clone(), tone),
                    plain(&event.reason),
                    plain(seen(event, self.now)),
                    plain(&event.source),
                    plain(&event.about),
                    plain(one_line(&event.message)),
                ]
            })
            .collect();
        let headers = ["Type", "Reason", "Age", "From", "Object", "Message"];
        self.table(f, "Events", &headers, &rows)?;
        if earlier > 0 {
            let (name, namespace) = (self.job.name(), self.job.namespace());
            writeln!(
                f,
                "  and {earlier} before them: kubectl di events {name} -n {namespace}"
            )?;
        }
        Ok(())
    }

    fn table(
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
        let underlines = headers.iter().map(|header| plain("-".repeat(header.len())));
        let mut all = vec![
            headers.iter().map(plain).collect(),
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

    fn time(&self, at: Option<Timestamp>) -> String {
        let Some(at) = at else {
            return NONE.to_owned();
        };
        let date = at
            .to_zoned(TimeZone::UTC)
            .strftime("%a, %d %b %Y %H:%M:%S %z");
        format!("{date} ({} ago)", age(at, self.now))
    }
}

/// When an event was told, and how often if more than once, as kubectl writes it.
pub fn seen(event: &Event, now: Timestamp) -> String {
    let last = or_none(event.last.map(|last| age(last, now)));
    match event.first {
        Some(first) if event.count > 1 => {
            format!("{last} (x{} over {})", event.count, age(first, now))
        }
        _ => last,
    }
}

fn plain(text: impl Display) -> Cell {
    (text.to_string(), None)
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn pairs(map: &Value) -> Vec<Cell> {
    let pairs = map.as_object().into_iter().flatten();
    let pairs = pairs.filter(|(key, _)| !is_note(key));
    let pairs =
        pairs.map(|(key, value)| plain(format!("{key}={}", value.as_str().unwrap_or_default())));
    let pairs: Vec<_> = pairs.collect();
    if pairs.is_empty() {
        vec![plain(NONE)]
    } else {
        pairs
    }
}

/// Whether an annotation is for programs: the whole manifest once more, or what the orchestrator is told.
fn is_note(key: &str) -> bool {
    key == "kubectl.kubernetes.io/last-applied-configuration" || names::NOTES.contains(&key)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
