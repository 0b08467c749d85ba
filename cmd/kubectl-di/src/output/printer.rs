use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::flags::dry_run::DryRunFlag;

use super::{
    format::{self, ObjectFormat},
    objects::{kind_and_name, without_managed_fields},
};

/// The output flags of commands that change objects.
#[derive(Debug, Args)]
pub struct OutputFlags {
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<ObjectFormat>,
}

impl OutputFlags {
    /// The flags of a command that supports only `-o name`.
    pub fn names_only(only: bool) -> Self {
        Self {
            output: only.then_some(ObjectFormat::Name),
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
        let object = without_managed_fields(object);
        match self.output.output {
            None => writeln!(
                out,
                "{} {done}{}",
                kind_and_name(&object),
                self.dry_run.message_suffix()
            )?,
            Some(format) => {
                if format == ObjectFormat::Yaml && self.printed > 0 {
                    writeln!(out, "---")?;
                }
                format::print_object(format, out, &object)?;
            }
        }
        self.printed += 1;
        Ok(())
    }
}
