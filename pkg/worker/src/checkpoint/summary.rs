//! The summary of a training: a JSON line per iteration, for plots.

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{Result, chain, lifecycle::Stats, storage::Storage};

/// Maximum lines of a file, the newest: some megabytes.
const MAX_LINES: usize = 10_000;

/// The summary file. It is always written whole, because objects of a bucket cannot be appended to.
#[derive(Debug)]
pub struct Summary {
    storage: Storage,
    path: PathBuf,
    /// Minimum time between two writes.
    every: Duration,
    written_at: Instant,
    lines: VecDeque<String>,
}

impl Summary {
    /// Opens the summary of a training that resumes from an iteration; earlier lines are kept.
    ///
    /// # Errors
    /// The folder cannot be created, or the file cannot be read.
    pub fn open(storage: Storage, path: PathBuf, from: u64, every: Duration) -> Result<Self> {
        let folder = path.parent().unwrap_or(&path);
        storage.create_folder(folder)?;
        let is_there = from > 0 && storage.list_entries(folder)?.contains(&path);
        let file = if is_there {
            storage.read(&path)?
        } else {
            Vec::new()
        };
        let text = String::from_utf8_lossy(&file);
        let before = text.lines().filter(|line| is_before(line, from));
        Ok(Self {
            lines: before.map(str::to_owned).collect(),
            storage,
            path,
            every,
            written_at: Instant::now(),
        })
    }

    /// Adds the stats of an iteration, and writes the file if it is due.
    pub fn record_stats(&mut self, stats: &Stats) {
        match serde_json::to_string(stats) {
            Ok(line) => self.lines.push_back(line),
            Err(error) => tracing::warn!("cannot encode a line of the summary: {error}"),
        }
        let surplus = self.lines.len().saturating_sub(MAX_LINES);
        self.lines.drain(..surplus);
        if self.written_at.elapsed() >= self.every {
            self.write_file();
        }
    }

    /// Writes the file. A failure is logged, and the next iteration retries.
    pub fn write_file(&mut self) {
        let mut file = String::new();
        for line in &self.lines {
            file.push_str(line);
            file.push('\n');
        }
        match self.storage.write(&self.path, file.as_bytes()) {
            Ok(_) => self.written_at = Instant::now(),
            Err(error) => tracing::warn!(
                "cannot write the summary, retrying after the next iteration: {}",
                chain(&error)
            ),
        }
    }
}

/// Whether a line belongs to an earlier iteration.
fn is_before(line: &str, from: u64) -> bool {
    let line = serde_json::from_str::<Value>(line).ok();
    let iteration = line.and_then(|line| line.get("iteration")?.as_f64());
    iteration.is_some_and(|iteration| iteration < from as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumed_summary_has_no_duplicate_iterations() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let path = storage.root().join("summaries/of.jsonl");
        let open = |from, every| {
            let every = Duration::from_secs(every);
            Summary::open(storage.clone(), path.clone(), from, every).unwrap()
        };
        let note = |summary: &mut Summary, iteration: f64, evaluation| {
            summary.record_stats(&Stats::from([
                ("iteration".into(), iteration),
                ("evaluation".into(), evaluation),
            ]));
        };
        let read = || String::from_utf8(storage.read(&path).unwrap()).unwrap();

        let mut rarely = open(0, 3600);
        note(&mut rarely, 0.0, 9.5);
        assert!(!path.exists(), "the write is not due");
        note(&mut rarely, 1.0, 20.0);
        note(&mut rarely, 2.0, 30.0);
        rarely.write_file();
        let mut again = open(2, 0);
        note(&mut again, 2.0, 30.5);
        assert_eq!(
            read(),
            "{\"evaluation\":9.5,\"iteration\":0.0}\n{\"evaluation\":20.0,\"iteration\":1.0}\n{\"evaluation\":30.5,\"iteration\":2.0}\n"
        );
        note(&mut open(0, 0), 0.0, 9.5);
        assert_eq!(
            read().lines().count(),
            1,
            "a new training starts an empty file"
        );
    }

    #[test]
    fn summary_keeps_newest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let path = storage.root().join("summaries/of.jsonl");
        let mut summary = Summary::open(storage, path, 0, Duration::MAX).unwrap();
        for _ in 0..MAX_LINES + 3 {
            summary.record_stats(&Stats::new());
        }
        assert_eq!(summary.lines.len(), MAX_LINES);
    }
}
