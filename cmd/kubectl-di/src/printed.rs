use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::{
    dry_run::DryRunFlag,
    format::{self, Format, ObjectFormat},
    output::{presentable, title},
};

/// The flags of commands that can show the objects that they change.
#[derive(Debug, Args)]
pub struct Output {
    /// Show the objects instead of telling what became of them: json, yaml, name, jsonpath=…, jsonpath-as-json=… or jsonpath-file=…
    #[arg(short, long)]
    output: Option<ObjectFormat>,
    /// Show who wrote which fields, too
    #[arg(long)]
    show_managed_fields: bool,
}

impl Output {
    /// Of commands that can show names alone.
    pub fn of_names(only: bool) -> Self {
        Self {
            output: only.then_some(ObjectFormat(Format::Name)),
            show_managed_fields: false,
        }
    }

    /// Whether what is printed is for programs.
    pub fn is_data(&self) -> bool {
        self.output.is_some()
    }
}

/// Prints the objects that a command changes: as they are by now, or that they are changed.
pub struct Printer<'a> {
    output: &'a Output,
    dry_run: DryRunFlag,
    printed: usize,
}

impl<'a> Printer<'a> {
    pub fn new(output: &'a Output, dry_run: DryRunFlag) -> Self {
        Self {
            output,
            dry_run,
            printed: 0,
        }
    }

    /// One object, and what became of it, as `created`.
    pub fn print(&mut self, out: &mut impl Write, object: Value, done: &str) -> Result<()> {
        let object = if self.output.show_managed_fields {
            object
        } else {
            presentable(object)
        };
        match &self.output.output {
            None => writeln!(out, "{} {done}{}", title(&object), self.dry_run.suffix())?,
            Some(ObjectFormat(format)) => {
                if matches!(format, Format::Yaml) && self.printed > 0 {
                    writeln!(out, "---")?;
                }
                format::print_one(format, out, &object, true)?;
            }
        }
        self.printed += 1;
        Ok(())
    }
}
