use std::{fs, io::Write, slice, str::FromStr};

use anyhow::{Context, Result, ensure};
use di_client::Template;
use serde_json::Value;

use crate::{
    columns::Columns,
    output::{self, kind_and_name},
};

/// An output format of kubectl's `-o`.
#[derive(Clone, Debug)]
pub enum Format {
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kind and name.
    Name,
    /// The result of a JSONPath template.
    JsonPath(Template),
    /// The values that a JSONPath template selects, as JSON.
    JsonPathAsJson(Template),
    /// A table with custom columns.
    Columns(Columns),
}

/// An output format for single objects, which are not printed as a table.
#[derive(Clone, Debug)]
pub struct ObjectFormat(pub Format);

const TABLE_FORMATS: [&str; 3] = ["custom-columns", "custom-columns-file", "wide"];
const OBJECT_FORMATS: [&str; 6] = [
    "json",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "name",
    "yaml",
];

impl FromStr for Format {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut known = [&TABLE_FORMATS[..], &OBJECT_FORMATS].concat();
        known.sort_unstable();
        Self::parse_one_of(&known, text)
    }
}

impl FromStr for ObjectFormat {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Format::parse_one_of(&OBJECT_FORMATS, text).map(Self)
    }
}

impl Format {
    fn parse_one_of(known: &[&str], text: &str) -> Result<Self> {
        let (name, template) = match text.split_once('=') {
            Some((name, template)) => (name, Some(template)),
            None => (text, None),
        };
        let template = || {
            let template = template.filter(|template| !template.is_empty());
            template.context("template format specified but no template given")
        };
        let file = || {
            let path = template()?;
            fs::read_to_string(path).with_context(|| format!("error reading template {path}"))
        };
        ensure!(
            known.contains(&name),
            "unable to match a printer suitable for the output format {text:?}, allowed formats are: {}",
            known.join(", ")
        );
        Ok(match name {
            "jsonpath" => Self::JsonPath(Template::parse(template()?)?),
            "jsonpath-as-json" => Self::JsonPathAsJson(Template::parse(template()?)?),
            "jsonpath-file" => Self::JsonPath(Template::parse(&file()?)?),
            "custom-columns" => {
                let given = template().ok();
                let given =
                    given.context("custom-columns format specified but no custom columns given")?;
                Self::Columns(Columns::parse(given)?)
            }
            "custom-columns-file" => Self::Columns(Columns::parse_file(&file()?)?),
            _ => {
                let known = match name {
                    "wide" => Self::Wide,
                    "json" => Self::Json,
                    "yaml" => Self::Yaml,
                    _ => Self::Name,
                };
                ensure!(text == name, "the output format {name} takes no template");
                known
            }
        })
    }
}

/// Whether the format is the default or the wide table.
pub fn is_table(format: Option<&Format>) -> bool {
    matches!(format, None | Some(Format::Wide))
}

/// Prints objects in a format other than the default or wide table.
///
/// `whole` is the list of the items, or the only item if a single object was requested.
pub fn print_objects(
    format: &Format,
    out: &mut impl Write,
    whole: &Value,
    items: &[Value],
    headers: bool,
) -> Result<()> {
    match format {
        Format::Json => output::print_json(out, whole)?,
        Format::Yaml => output::print_yaml(out, whole)?,
        Format::Name => {
            for item in items {
                writeln!(out, "{}", kind_and_name(item))?;
            }
        }
        Format::JsonPath(template) => out.write_all(template.render(whole)?.as_bytes())?,
        Format::JsonPathAsJson(template) => {
            out.write_all(template.render_json(whole)?.as_bytes())?;
        }
        Format::Columns(columns) => {
            let rows: Vec<_> = items.iter().map(|item| columns.row_cells(item)).collect();
            let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
            out.write_all(columns.empty_table(headers).render(&rows).as_bytes())?;
        }
        Format::Wide => {}
    }
    Ok(())
}

/// Prints a single object.
pub fn print_object(
    format: &Format,
    out: &mut impl Write,
    object: &Value,
    headers: bool,
) -> Result<()> {
    print_objects(format, out, object, slice::from_ref(object), headers)
}

/// Prints an object of a watch event.
pub fn print_watched(format: &Format, out: &mut impl Write, object: &Value) -> Result<()> {
    if matches!(format, Format::Yaml) {
        writeln!(out, "---")?;
    }
    print_object(format, out, object, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_their_errors_equal_those_of_kubectl() {
        let error = |text: &str| Format::from_str(text).unwrap_err().to_string();
        assert!(matches!(Format::from_str("wide"), Ok(Format::Wide)));
        // The template may contain `=` too.
        let template = "jsonpath={.items[?(@.a=='b')].c}";
        assert!(matches!(
            Format::from_str(template),
            Ok(Format::JsonPath(_))
        ));
        assert_eq!(
            error("toml"),
            "unable to match a printer suitable for the output format \"toml\", allowed formats are: custom-columns, custom-columns-file, json, \
             jsonpath, jsonpath-as-json, jsonpath-file, name, wide, yaml"
        );
        for table in ["wide", "custom-columns=A:.a"] {
            assert_eq!(
                ObjectFormat::from_str(table).unwrap_err().to_string(),
                format!(
                    "unable to match a printer suitable for the output format {table:?}, allowed formats are: json, jsonpath, jsonpath-as-json, \
                     jsonpath-file, name, yaml"
                )
            );
        }
        assert!(ObjectFormat::from_str("jsonpath={.a}").is_ok());
        assert_eq!(
            error("jsonpath"),
            "template format specified but no template given"
        );
        assert!(error("jsonpath-file=/nowhere").starts_with("error reading template /nowhere"));
        assert_eq!(error("json=x"), "the output format json takes no template");
    }
}
