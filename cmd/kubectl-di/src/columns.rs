use anyhow::{Context, Result, bail, ensure};
use di_client::Path;
use serde_json::Value;

use crate::table::Table;

/// Custom columns such as `NAME:.metadata.name,PHASE:.status.phase`.
#[derive(Clone, Debug)]
pub struct Columns(Vec<(String, Path)>);

impl Columns {
    /// Parses the value of `custom-columns=`.
    pub fn parse(text: &str) -> Result<Self> {
        let one = |column: &str| {
            let Some((header, path)) = column.split_once(':') else {
                bail!(
                    "unexpected custom-columns spec: {column}, expected <header>:<json-path-expr>"
                );
            };
            Ok((header.to_owned(), Path::parse_relaxed(path)?))
        };
        let columns = split_columns(text).into_iter().map(one);
        Ok(Self(columns.collect::<Result<_>>()?))
    }

    /// Parses a file with one line of headers and one line of paths.
    pub fn parse_file(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let mut line = |name: &str| {
            let line = lines.next().filter(|line| !line.trim().is_empty());
            line.with_context(|| format!("invalid template, missing {name} line"))
        };
        let headers: Vec<_> = line("header")?.split_whitespace().collect();
        let paths: Vec<_> = line("spec")?.split_whitespace().collect();
        ensure!(
            headers.len() == paths.len(),
            "number of headers ({}) and field specifications ({}) don't match",
            headers.len(),
            paths.len()
        );
        let columns = headers.into_iter().zip(paths);
        let columns =
            columns.map(|(header, path)| Ok((header.to_owned(), Path::parse_relaxed(path)?)));
        Ok(Self(columns.collect::<Result<_>>()?))
    }

    /// An empty table of these columns.
    pub fn empty_table(&self, headers: bool) -> Table {
        let names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        Table::new(&names, headers)
    }

    /// The cells of the row of an object.
    pub fn row_cells(&self, object: &Value) -> Result<Vec<String>> {
        let cell = |(_, path): &(String, Path)| {
            let found = path.find(object)?;
            let texts: Vec<_> = found.into_iter().map(format_like_go).collect();
            Ok(match texts.as_slice() {
                [] => "<none>".to_owned(),
                texts => texts.join(","),
            })
        };
        self.0.iter().map(cell).collect()
    }
}

/// Splits columns at commas, except for commas in brackets.
fn split_columns(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

/// Formats a value as Go prints it: kubectl does so, and scripts rely on it.
fn format_like_go(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(format_like_go).collect();
            format!("[{}]", values.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", format_like_go(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row_cells(columns: &Columns) -> Vec<String> {
        let object = json!({
            "metadata": {"name": "a", "labels": {"x": "y", "b": "c"}},
            "list": [1, null, true],
        });
        columns.row_cells(&object).unwrap()
    }

    #[test]
    fn values_are_formatted_like_in_kubectl() {
        let columns = "NAME:.metadata.name,LABELS:.metadata.labels,L:{.list},N:.no,ALL:.list[*],TWO:list[0,2]";
        assert_eq!(
            row_cells(&Columns::parse(columns).unwrap()),
            [
                "a",
                "map[b:c x:y]",
                "[1 <none> true]",
                "<none>",
                "1,<none>,true",
                "1,true"
            ]
        );
        let file = "NAME   LABEL\n.metadata.name   {.metadata.labels.x}\n";
        assert_eq!(row_cells(&Columns::parse_file(file).unwrap()), ["a", "y"]);
    }

    #[test]
    fn invalid_columns_are_rejected() {
        let error = Columns::parse("NAME").unwrap_err().to_string();
        assert_eq!(
            error,
            "unexpected custom-columns spec: NAME, expected <header>:<json-path-expr>"
        );
        let error = Columns::parse_file("A B\n.a\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "number of headers (2) and field specifications (1) don't match"
        );
    }
}
