//! Writes what was found: numbers as JSON, tables as Markdown, plots as SVG.

mod plots;
mod tables;

use std::{fs, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::harness::{machine::Machine, stats::Findings};

/// In the order of the page.
const ALL: [&str; 21] = [
    "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12", "B13", "B14", "B15",
    "B16", "B17", "B18", "B19", "B20", "B21",
];
const PAGE: &str = include_str!("report/benchmarks.md");

/// A run: where, and what it found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The findings.
    #[serde(flatten)]
    pub findings: Findings,
}

impl Report {
    /// The report of an earlier run.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = fs::read(folder.join("benchmarks/results.json"))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Writes everything into a folder: `benchmarks.md` and `benchmarks/`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let data_folder = folder.join("benchmarks");
        fs::create_dir_all(&data_folder)?;
        let results = serde_json::to_string_pretty(self)? + "\n";
        fs::write(data_folder.join("results.json"), results)?;
        let mut page = PAGE.replace("{{machine}}", &tables::machine(&self.machine));
        page = page.replace("{{verdicts}}", &tables::verdicts(&self.findings));
        for benchmark in ALL {
            let mut text = tables::measurements(&self.findings, benchmark);
            for (name, title, svg) in plots::all(&self.findings, benchmark)? {
                fs::write(data_folder.join(&name), svg)?;
                text += &format!("\n![{title}](benchmarks/{name})\n");
            }
            page = page.replace(&format!("{{{{{benchmark}}}}}"), text.trim_end());
        }
        fs::write(folder.join("benchmarks.md"), page)?;
        Ok(())
    }
}
