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

/// What a watch has shown, so that what has not changed is not shown again.
pub struct Rows<'a> {
    get: &'a Get,
    table: Table,
    shown: HashMap<(String, String), Shown>,
}

/// A row, and the columns of labels behind it.
type Shown = (JobRow, Vec<String>);

impl<'a> Rows<'a> {
    pub fn new(get: &'a Get) -> Self {
        let table = if let Some(Format::Columns(columns)) = &get.output {
            columns.table(!get.no_headers)
        } else {
            let headers = headers(get);
            let headers: Vec<_> = headers.iter().map(String::as_str).collect();
            Table::new(&headers, !get.no_headers)
        };
        Self {
            get,
            table,
            shown: HashMap::new(),
        }
    }

    /// Takes jobs as shown.
    pub fn know(&mut self, jobs: &[Job]) {
        for job in jobs {
            self.shown.insert(key(job), self.row(job));
        }
    }

    /// Shows jobs, where they are not as they were.
    pub fn show(&mut self, jobs: &[Job], out: &mut impl Write) -> Result<()> {
        let mut rows = Vec::new();
        for job in jobs {
            match &self.get.output {
                Some(Format::Columns(columns)) => rows.push(columns.cells(&job.object)?),
                Some(format) if !is_table(Some(format)) => {
                    let object = self.get.presentable(job.object.clone());
                    format::print_next(format, out, &object)?;
                }
                _ => {
                    let new = self.row(job);
                    let old = self.shown.insert(key(job), new.clone());
                    let is_same = |old: Shown| old.0.same_but_age(&new.0) && old.1 == new.1;
                    if !old.is_some_and(is_same) {
                        let mut cells = new.0.cells(self.get.all_namespaces, is_wide(self.get));
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

    /// Shows a job that is gone as it was last.
    pub fn show_last(&mut self, job: &Job, out: &mut impl Write) -> Result<()> {
        self.shown.remove(&key(job));
        self.show(slice::from_ref(job), out)?;
        self.shown.remove(&key(job));
        Ok(())
    }

    fn row(&self, job: &Job) -> Shown {
        let labels = job.metadata.labels.as_ref();
        let mut behind: Vec<_> = self
            .get
            .label_columns
            .iter()
            .map(|label| labels.and_then(|labels| labels.get(label)).cloned())
            .map(Option::unwrap_or_default)
            .collect();
        if self.get.show_labels {
            let pairs = labels.into_iter().flatten();
            let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
            behind.push(match pairs.as_slice() {
                [] => "<none>".to_owned(),
                pairs => pairs.join(","),
            });
        }
        (JobRow::new(job, Timestamp::now()), behind)
    }
}

fn headers(get: &Get) -> Vec<String> {
    let headers = JobRow::headers(get.all_namespaces, is_wide(get)).into_iter();
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

fn key(job: &Job) -> (String, String) {
    (job.namespace().to_owned(), job.name().to_owned())
}
