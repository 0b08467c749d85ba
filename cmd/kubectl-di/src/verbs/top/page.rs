use std::collections::BTreeMap;

use di_client::{Job, LiveView, Replica};
use jiff::Timestamp;

use crate::output::{
    colour::{Tone, tone_for_status},
    rows::{JobRow, NONE, replica_cells, replica_headers},
};

/// A page of the view.
#[derive(Debug, Default)]
pub struct Page {
    /// The namespace and name of the job whose replicas are the lines; none for the list of jobs.
    pub job: Option<(String, String)>,
    /// The title above the table.
    pub title: String,
    /// The summary next to the title.
    pub summary: String,
    /// The column headers.
    pub headers: Vec<&'static str>,
    /// The lines that match the filter.
    pub lines: Vec<Line>,
    /// The watch error, if the page may be out of date.
    pub trouble: Option<String>,
}

/// A line of the table.
#[derive(Debug)]
pub struct Line {
    /// The unique key of the line.
    pub key: String,
    /// The namespace and name of the job, if the line is a job.
    pub job: Option<(String, String)>,
    /// The cells.
    pub cells: Vec<String>,
    /// The index of the coloured column, and its tone.
    pub tone: Option<(usize, Tone)>,
}

impl Page {
    /// The page of the opened job, or the list of jobs if none is opened or the job was deleted.
    pub fn new(
        namespace: Option<&str>,
        opened: Option<&(String, String)>,
        filter: &str,
        live: &LiveView,
        now: Timestamp,
    ) -> Self {
        let job = opened.and_then(|(namespace, name)| live.find_job(namespace, name));
        let mut page = match job {
            Some(job) => Self::replicas_page(job, &live.replicas_of_job(job), now),
            None => Self::jobs_page(live.jobs(), namespace, now),
        };
        page.trouble = live.watch_error().map(str::to_owned);
        // The filter of a deleted job does not apply to the list of jobs.
        let closed = opened.is_some() && job.is_none();
        page.apply_filter(if closed { "" } else { filter });
        page
    }

    pub fn jobs_page<'a>(
        jobs: impl Iterator<Item = &'a Job>,
        namespace: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let all = namespace.is_none();
        let mut phases: BTreeMap<String, usize> = BTreeMap::new();
        let mut lines = Vec::new();
        for job in jobs {
            let phase = job.status.phase.map_or("New", di_api::Phase::as_str);
            *phases.entry(phase.to_owned()).or_default() += 1;
            lines.push(Line {
                key: format!("{}/{}", job.namespace(), job.name()),
                job: Some((job.namespace().to_owned(), job.name().to_owned())),
                cells: JobRow::new(job, now).into_cells(all, true),
                tone: tone_for_status(phase).map(|tone| (if all { 2 } else { 1 }, tone)),
            });
        }
        let phases = phases
            .iter()
            .map(|(phase, count)| format!("{count} {phase}"));
        Self {
            job: None,
            title: match namespace {
                Some(namespace) => format!("Jobs in {namespace}"),
                None => "Jobs in all namespaces".to_owned(),
            },
            summary: match lines.len() {
                0 => "none".to_owned(),
                _ => phases.collect::<Vec<_>>().join(", "),
            },
            headers: JobRow::column_headers(all, true),
            lines,
            trouble: None,
        }
    }

    pub fn replicas_page(job: &Job, replicas: &[Replica], now: Timestamp) -> Self {
        // The columns of the wide table without URL and REPLACES; the status comes first, because
        // narrow windows cut the columns on the right.
        const ORDER: [usize; 11] = [0, 1, 4, 5, 6, 7, 8, 9, 10, 2, 3];
        let headers = replica_headers(true);
        let status = &job.status;
        let mut summary = vec![status.phase.map_or("New", di_api::Phase::as_str).to_owned()];
        let mut add = |label: &str, text: &Option<String>| {
            summary.extend(text.as_ref().map(|text| format!("{label}{text}")));
        };
        add("collectors ", &status.collectors_ready);
        add("learners ", &status.learners_ready);
        add("", &status.reason);
        let line = |replica: &Replica| {
            let mut cells = replica_cells(replica, now, true);
            let cells = ORDER.map(|at| std::mem::take(&mut cells[at])).to_vec();
            Line {
                key: replica.name.clone(),
                job: None,
                cells,
                tone: tone_for_status(replica.display_status()).map(|tone| (2, tone)),
            }
        };
        Self {
            job: Some((job.namespace().to_owned(), job.name().to_owned())),
            title: format!("{}/{}", job.namespace(), job.name()),
            summary: summary.join(", "),
            headers: ORDER.map(|at| headers[at]).to_vec(),
            lines: replicas.iter().map(line).collect(),
            trouble: None,
        }
    }

    /// Removes the lines that do not match the filter.
    pub fn apply_filter(&mut self, filter: &str) {
        let filter = filter.to_lowercase();
        self.lines.retain(|line| {
            // A missing value is no text that a user looks for.
            let mut cells = line.cells.iter().filter(|cell| *cell != NONE);
            filter.is_empty() || cells.any(|cell| cell.to_lowercase().contains(&filter))
        });
    }
}
