use anyhow::{Context, Result, bail, ensure};
use di_client::Path;
use serde_json::Value;

use crate::table::Table;

/// Columns that the user chose, as `NAME:.metadata.name,PHASE:.status.phase`.
#[derive(Clone, Debug)]
pub struct Columns(Vec<(String, Path)>);

impl Columns {
    /// Reads them as they stand behind `custom-columns=`.
    pub fn parse(text: &str) -> Result<Self> {
        let one = |column: &str| {
            let Some((header, path)) = column.split_once(':') else {
                bail!(
                    "unexpected custom-columns spec: {column}, expected <header>:<json-path-expr>"
                );
            };
            Ok((header.to_owned(), Path::relaxed(path)?))
        };
        let columns = columns_of(text).into_iter().map(one);
        Ok(Self(columns.collect::<Result<_>>()?))
    }

    /// Reads them as they stand in a file: a line of headers, and one of paths.
    pub fn parse_file(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let mut line = |what: &str| {
            let line = lines.next().filter(|line| !line.trim().is_empty());
            line.with_context(|| format!("invalid template, missing {what} line"))
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
        let columns = columns.map(|(header, path)| Ok((header.to_owned(), Path::relaxed(path)?)));
        Ok(Self(columns.collect::<Result<_>>()?))
    }

    /// An empty table of these columns.
    pub fn table(&self, headers: bool) -> Table {
        let names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        Table::new(&names, headers)
    }

    /// A row of it.
    pub fn cells(&self, object: &Value) -> Result<Vec<String>> {
        let cell = |(_, path): &(String, Path)| {
            let found = path.find(object)?;
            let texts: Vec<_> = found.into_iter().map(as_go_prints).collect();
            Ok(match texts.as_slice() {
                [] => "<none>".to_owned(),
                texts => texts.join(","),
            })
        };
        self.0.iter().map(cell).collect()
    }
}

/// Columns between commas; those in brackets and quotes belong to a path.
fn columns_of(text: &str) -> Vec<&str> {
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

/// kubectl leaves it to Go how values are written here, and scripts rely on it.
fn as_go_prints(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(as_go_prints).collect();
            format!("[{}]", values.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", as_go_prints(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(columns: &Columns) -> Vec<String> {
        let object = json!({
            "metadata": {"name": "a", "labels": {"x": "y", "b": "c"}},
            "list": [1, null, true],
        });
        columns.cells(&object).unwrap()
    }

    #[test]
    fn values_are_written_as_kubectl_writes_them() {
        let columns = "NAME:.metadata.name,LABELS:.metadata.labels,L:{.list},N:.no,ALL:.list[*],TWO:list[0,2]";
        assert_eq!(
            cells(&Columns::parse(columns).unwrap()),
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
        assert_eq!(cells(&Columns::parse_file(file).unwrap()), ["a", "y"]);
    }

    #[test]
    fn mistakes_are_told() {
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
