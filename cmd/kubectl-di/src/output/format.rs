use std::{io::Write, slice};

use anyhow::Result;
use clap::ValueEnum;
use serde_json::Value;

use super::objects::{kind_and_name, print_json, print_yaml};

/// An output format of commands that print a table by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Kind and name
    Name,
}

/// An output format of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ObjectFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Kind and name
    Name,
}

/// An output format of data that has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl Format {
    /// The format of the objects; none for a table.
    pub fn objects(self) -> Option<ObjectFormat> {
        match self {
            Self::Wide => None,
            Self::Json => Some(ObjectFormat::Json),
            Self::Yaml => Some(ObjectFormat::Yaml),
            Self::Name => Some(ObjectFormat::Name),
        }
    }
}

/// Prints objects. `whole` is the list of the items, or the only item if a single object was
/// requested.
pub fn print_objects(
    format: ObjectFormat,
    out: &mut impl Write,
    whole: &Value,
    items: &[Value],
) -> Result<()> {
    match format {
        ObjectFormat::Json => print_json(out, whole)?,
        ObjectFormat::Yaml => print_yaml(out, whole)?,
        ObjectFormat::Name => {
            for item in items {
                writeln!(out, "{}", kind_and_name(item))?;
            }
        }
    }
    Ok(())
}

/// Prints a single object.
pub fn print_object(format: ObjectFormat, out: &mut impl Write, object: &Value) -> Result<()> {
    print_objects(format, out, object, slice::from_ref(object))
}

/// Prints an object of a watch event.
pub fn print_watched(format: ObjectFormat, out: &mut impl Write, object: &Value) -> Result<()> {
    if format == ObjectFormat::Yaml {
        writeln!(out, "---")?;
    }
    print_object(format, out, object)
}
