use std::{collections::HashMap, io::Write, slice};

use anyhow::Result;
use di_client::Job;
use jiff::Timestamp;

use crate::{
    format::{self, Format, is_table},
    rows::JobRow,
    table::Table,
};

use super::Get;

/// The rows that a watch has printed, so that unchanged rows are not printed again.
pub struct Rows<'a> {
    get: &'a Get,
    table: Table,
    shown: HashMap<(String, String), PrintedRow>,
}

/// A row and its label columns.
type PrintedRow = (JobRow, Vec<String>);

impl<'a> Rows<'a> {
    pub fn new(get: &'a Get) -> Self {
        let table = if let Some(Format::Columns(columns)) = &get.output {
            columns.empty_table(!get.no_headers)
        } else {
            let headers = column_headers(get);
            let headers: Vec<_> = headers.iter().map(String::as_str).collect();
            Table::new(&headers, !get.no_headers)
        };
        Self {
            get,
            table,
            shown: HashMap::new(),
        }
    }

    /// Records jobs as printed without printing them.
    pub fn mark_shown(&mut self, jobs: &[Job]) {
        for job in jobs {
            self.shown.insert(job_key(job), self.job_row(job));
        }
    }

    /// Prints the jobs that changed.
    pub fn print_changed(&mut self, jobs: &[Job], out: &mut impl Write) -> Result<()> {
        let mut rows = Vec::new();
        for job in jobs {
            match &self.get.output {
                Some(Format::Columns(columns)) => rows.push(columns.row_cells(&job.object)?),
                Some(format) if !is_table(Some(format)) => {
                    let object = self.get.displayed_object(job.object.clone());
                    format::print_watched(format, out, &object)?;
                }
                _ => {
                    let new = self.job_row(job);
                    let old = self.shown.insert(job_key(job), new.clone());
                    let is_same =
                        |old: PrintedRow| old.0.equals_except_age(&new.0) && old.1 == new.1;
                    if !old.is_some_and(is_same) {
                        let mut cells =
                            new.0.into_cells(self.get.all_namespaces, is_wide(self.get));
                        cells.extend(new.1);
                        rows.push(cells);
                    }
                }
            }
        }
        if !rows.is_empty() {
            out.write_all(self.table.render(&rows).as_bytes())?;
        }
        Ok(out.flush()?)
    }

    /// Prints the last state of a deleted job.
    pub fn print_deleted(&mut self, job: &Job, out: &mut impl Write) -> Result<()> {
        self.shown.remove(&job_key(job));
        self.print_changed(slice::from_ref(job), out)?;
        self.shown.remove(&job_key(job));
        Ok(())
    }

    fn job_row(&self, job: &Job) -> PrintedRow {
        let labels = job.metadata.labels.as_ref();
        let mut label_cells: Vec<_> = self
            .get
            .label_columns
            .iter()
            .map(|label| labels.and_then(|labels| labels.get(label)).cloned())
            .map(Option::unwrap_or_default)
            .collect();
        if self.get.show_labels {
            let pairs = labels.into_iter().flatten();
            let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
            label_cells.push(match pairs.as_slice() {
                [] => "<none>".to_owned(),
                pairs => pairs.join(","),
            });
        }
        (JobRow::new(job, Timestamp::now()), label_cells)
    }
}

fn column_headers(get: &Get) -> Vec<String> {
    let headers = JobRow::column_headers(get.all_namespaces, is_wide(get)).into_iter();
    let mut headers: Vec<_> = headers.map(str::to_owned).collect();
    headers.extend(get.label_columns.iter().map(|label| {
        let name = label.rsplit('/').next().unwrap_or(label);
        name.to_uppercase()
    }));
    headers.extend(get.show_labels.then(|| "LABELS".to_owned()));
    headers
}

fn is_wide(get: &Get) -> bool {
    matches!(get.output, Some(Format::Wide))
}

fn job_key(job: &Job) -> (String, String) {
    (job.namespace().to_owned(), job.name().to_owned())
}
