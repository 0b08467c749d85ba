//! Templates as kubectl's `-o jsonpath` reads them: text, paths in braces, and `{range …}…{end}`.

mod path;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

pub use path::Path;
use path::quoted;

/// A template that was read.
#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Node {
    Text(String),
    Path(Path),
    Range(Path, Vec<Self>),
}

impl Template {
    /// Reads a template.
    pub fn parse(source: &str) -> Result<Self> {
        let read = || {
            let mut rest = source;
            let nodes = nodes(&mut rest, false)?;
            Ok::<_, anyhow::Error>(nodes)
        };
        match read() {
            Ok(nodes) => Ok(Self {
                source: source.to_owned(),
                nodes,
            }),
            Err(error) => bail!("error parsing jsonpath {source}, {error}"),
        }
    }

    /// What it makes of an object.
    pub fn render(&self, object: &Value) -> Result<String> {
        let mut text = String::new();
        match write(&mut text, &self.nodes, object) {
            Ok(()) => Ok(text),
            Err(error) => bail!(
                "error executing jsonpath {:?}: Error executing template: {error}",
                self.source
            ),
        }
    }
}

/// Reads up to the end, or up to `{end}` inside of a range.
fn nodes(rest: &mut &str, in_range: bool) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    loop {
        let Some((text, after)) = rest.split_once('{') else {
            ensure!(!in_range, "unclosed range: {{end}} is missing");
            if !rest.is_empty() {
                nodes.push(Node::Text((*rest).to_owned()));
            }
            return Ok(nodes);
        };
        if !text.is_empty() {
            nodes.push(Node::Text(text.to_owned()));
        }
        let Some(end) = closing(after) else {
            bail!("unclosed action");
        };
        let action = after[..end].trim();
        *rest = &after[end + 1..];
        if action == "end" {
            ensure!(in_range, "not in range, nothing to end");
            return Ok(nodes);
        }
        if let Some(over) = action.strip_prefix("range").filter(|over| {
            over.starts_with(char::is_whitespace) || over.starts_with(['.', '[', '$', '@'])
        }) {
            let over = Path::parse(over)?;
            nodes.push(Node::Range(over, self::nodes(rest, true)?));
        } else if let Some(text) = quoted(action)? {
            nodes.push(Node::Text(text));
        } else {
            nodes.push(Node::Path(Path::parse(action)?));
        }
    }
}

/// Where the brace is that closes an action; those in quotes do not.
fn closing(action: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in action.char_indices() {
        match (c, quote) {
            _ if escaped => escaped = false,
            ('\\', _) => escaped = true,
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            ('}', None) => return Some(at),
            _ => {}
        }
    }
    None
}

fn write(text: &mut String, nodes: &[Node], object: &Value) -> Result<()> {
    for node in nodes {
        match node {
            Node::Text(literal) => text.push_str(literal),
            Node::Path(path) => {
                let found: Vec<_> = path.find(object)?.into_iter().map(printed).collect();
                text.push_str(&found.join(" "));
            }
            Node::Range(over, nodes) => {
                for object in over.find(object)? {
                    write(text, nodes, object)?;
                }
            }
        }
    }
    Ok(())
}

fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
