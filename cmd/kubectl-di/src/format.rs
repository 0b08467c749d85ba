use std::{fs, io::Write, slice, str::FromStr};

use anyhow::{Context, Result, ensure};
use di_client::Template;
use serde_json::Value;

use crate::{
    columns::Columns,
    output::{self, title},
};

/// How objects are shown, as kubectl's `-o` has it.
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
    /// What a template makes of them.
    JsonPath(Template),
    /// What it finds, as JSON.
    JsonPathAsJson(Template),
    /// A table of the user's own columns.
    Columns(Columns),
}

/// One for objects that are shown one by one, which make no table.
#[derive(Clone, Debug)]
pub struct ObjectFormat(pub Format);

const TABLES: [&str; 3] = ["custom-columns", "custom-columns-file", "wide"];
const FORMS: [&str; 6] = [
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
        let mut known = [&TABLES[..], &FORMS].concat();
        known.sort_unstable();
        Self::one_of(&known, text)
    }
}

impl FromStr for ObjectFormat {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Format::one_of(&FORMS, text).map(Self)
    }
}

impl Format {
    fn one_of(known: &[&str], text: &str) -> Result<Self> {
        let (name, template) = match text.split_once('=') {
            Some((name, template)) => (name, Some(template)),
            None => (text, None),
        };
        let template = || {
            let given = template.filter(|template| !template.is_empty());
            given.context("template format specified but no template given")
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

/// Whether this is a table of our own columns.
pub fn is_table(format: Option<&Format>) -> bool {
    matches!(format, None | Some(Format::Wide))
}

/// Prints in a form that is no table of ours; `whole` are the items as one object, or the one that was asked for.
pub fn print(
    format: &Format,
    out: &mut impl Write,
    whole: &Value,
    items: &[Value],
    headers: bool,
) -> Result<()> {
    match format {
        Format::Json => output::json(out, whole)?,
        Format::Yaml => output::yaml(out, whole)?,
        Format::Name => {
            for item in items {
                writeln!(out, "{}", title(item))?;
            }
        }
        Format::JsonPath(template) => out.write_all(template.render(whole)?.as_bytes())?,
        Format::JsonPathAsJson(template) => {
            out.write_all(template.render_json(whole)?.as_bytes())?;
        }
        Format::Columns(columns) => {
            let rows: Vec<_> = items.iter().map(|item| columns.cells(item)).collect();
            let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
            out.write_all(columns.table(headers).render(&rows).as_bytes())?;
        }
        Format::Wide => {}
    }
    Ok(())
}

/// The same of one object that stands for itself.
pub fn print_one(
    format: &Format,
    out: &mut impl Write,
    object: &Value,
    headers: bool,
) -> Result<()> {
    print(format, out, object, slice::from_ref(object), headers)
}

/// The same of one of those that a watch tells.
pub fn print_next(format: &Format, out: &mut impl Write, object: &Value) -> Result<()> {
    if matches!(format, Format::Yaml) {
        writeln!(out, "---")?;
    }
    print_one(format, out, object, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_called_as_kubectl_calls_them() {
        let error = |text: &str| Format::from_str(text).unwrap_err().to_string();
        assert!(matches!(Format::from_str("wide"), Ok(Format::Wide)));
        // The template may hold more of what parts it from its name.
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
