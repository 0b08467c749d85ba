use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::{
    dry_run::DryRunFlag,
    format::{self, Format, ObjectFormat},
    output::{kind_and_name, without_managed_fields},
};

/// The output flags of commands that change objects.
#[derive(Debug, Args)]
pub struct OutputFlags {
    /// Output format. One of: (json, yaml, name, jsonpath, jsonpath-as-json, jsonpath-file)
    #[arg(short, long)]
    output: Option<ObjectFormat>,
    /// If true, keep the managedFields when printing objects in JSON or YAML format
    #[arg(long)]
    show_managed_fields: bool,
}

impl OutputFlags {
    /// The flags of a command that supports only `-o name`.
    pub fn names_only(only: bool) -> Self {
        Self {
            output: only.then_some(ObjectFormat(Format::Name)),
            show_managed_fields: false,
        }
    }

    /// Whether the output is meant for programs.
    pub fn is_data(&self) -> bool {
        self.output.is_some()
    }
}

/// Prints changed objects: in the format of `-o`, or one line each such as `... created`.
pub struct Printer<'a> {
    output: &'a OutputFlags,
    dry_run: DryRunFlag,
    printed: usize,
}

impl<'a> Printer<'a> {
    pub fn new(output: &'a OutputFlags, dry_run: DryRunFlag) -> Self {
        Self {
            output,
            dry_run,
            printed: 0,
        }
    }

    /// Prints one object with the operation that was done, such as `created`.
    pub fn print_change(&mut self, out: &mut impl Write, object: Value, done: &str) -> Result<()> {
        let object = if self.output.show_managed_fields {
            object
        } else {
            without_managed_fields(object)
        };
        match &self.output.output {
            None => writeln!(
                out,
                "{} {done}{}",
                kind_and_name(&object),
                self.dry_run.message_suffix()
            )?,
            Some(ObjectFormat(format)) => {
                if matches!(format, Format::Yaml) && self.printed > 0 {
                    writeln!(out, "---")?;
                }
                format::print_object(format, out, &object, true)?;
            }
        }
        self.printed += 1;
        Ok(())
    }
}
