use std::io::Write;

use anyhow::Result;
use serde_json::Value;

use crate::{
    dry_run::DryRunFlag,
    output::{self, ObjectFormat, presentable, title},
};

/// Prints the objects that a command changes: as they are by now, or that they are changed.
pub struct Printer {
    output: Option<ObjectFormat>,
    dry_run: DryRunFlag,
    printed: usize,
}

impl Printer {
    pub fn new(output: Option<ObjectFormat>, dry_run: DryRunFlag) -> Self {
        Self {
            output,
            dry_run,
            printed: 0,
        }
    }

    /// One object, and what became of it, as `created`.
    pub fn print(&mut self, out: &mut impl Write, object: Value, done: &str) -> Result<()> {
        match self.output {
            None => writeln!(out, "{} {done}{}", title(&object), self.dry_run.suffix())?,
            Some(ObjectFormat::Name) => writeln!(out, "{}", title(&object))?,
            Some(ObjectFormat::Json) => output::json(out, &presentable(object))?,
            Some(ObjectFormat::Yaml) => {
                if self.printed > 0 {
                    writeln!(out, "---")?;
                }
                output::yaml(out, &presentable(object))?;
            }
        }
        self.printed += 1;
        Ok(())
    }
}
