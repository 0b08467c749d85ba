//! Templates as kubectl's `-o jsonpath` reads them: text, paths in braces, and `{range …}…{end}`.

mod path;

use serde::Serialize;
use serde_json::{Serializer, Value, ser::PrettyFormatter};

use crate::{Error, Result};

pub use path::Path;
use path::{jsonpath_error, parse_quoted};

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
    ///
    /// # Errors
    /// [`Error::JsonPath`] with what is wrong.
    pub fn parse(source: &str) -> Result<Self> {
        let read = || {
            let mut rest = source;
            let nodes = parse_nodes(&mut rest, false)?;
            Ok::<_, Error>(nodes)
        };
        match read() {
            Ok(nodes) => Ok(Self {
                source: source.to_owned(),
                nodes,
            }),
            Err(error) => Err(jsonpath_error(format_args!(
                "error parsing jsonpath {source}, {error}"
            ))),
        }
    }

    /// Renders an object.
    ///
    /// # Errors
    /// [`Error::JsonPath`] where an index is beyond the end of a list.
    pub fn render(&self, object: &Value) -> Result<String> {
        self.render_nodes(object, false)
    }

    /// Renders the found values like kubectl's `jsonpath-as-json`: one list for each part.
    ///
    /// # Errors
    /// As above.
    pub fn render_json(&self, object: &Value) -> Result<String> {
        self.render_nodes(object, true)
    }

    fn render_nodes(&self, object: &Value, as_json: bool) -> Result<String> {
        let mut text = String::new();
        match write_nodes(&mut text, &self.nodes, object, as_json) {
            Ok(()) => Ok(text),
            Err(error) => Err(jsonpath_error(format_args!(
                "error executing jsonpath {:?}: Error executing template: {error}",
                self.source
            ))),
        }
    }
}

/// Reads up to the end, or up to `{end}` inside of a range.
fn parse_nodes(rest: &mut &str, in_range: bool) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    loop {
        let Some((text, after)) = rest.split_once('{') else {
            if in_range {
                return Err(jsonpath_error("unclosed range: {end} is missing"));
            }
            if !rest.is_empty() {
                nodes.push(Node::Text((*rest).to_owned()));
            }
            return Ok(nodes);
        };
        if !text.is_empty() {
            nodes.push(Node::Text(text.to_owned()));
        }
        let Some(end) = closing_brace(after) else {
            return Err(jsonpath_error("unclosed action"));
        };
        let action = after[..end].trim();
        *rest = &after[end + 1..];
        if action == "end" {
            return if in_range {
                Ok(nodes)
            } else {
                Err(jsonpath_error("not in range, nothing to end"))
            };
        }
        if let Some(over) = action.strip_prefix("range").filter(|over| {
            over.starts_with(char::is_whitespace) || over.starts_with(['.', '[', '$', '@'])
        }) {
            let over = Path::parse(over)?;
            nodes.push(Node::Range(over, parse_nodes(rest, true)?));
        } else if let Some(text) = parse_quoted(action)? {
            nodes.push(Node::Text(text));
        } else {
            nodes.push(Node::Path(Path::parse(action)?));
        }
    }
}

/// Where the brace is that closes an action; those in quotes do not.
fn closing_brace(action: &str) -> Option<usize> {
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

fn write_nodes(text: &mut String, nodes: &[Node], object: &Value, as_json: bool) -> Result<()> {
    for node in nodes {
        match node {
            Node::Text(literal) if as_json => {
                text.push_str(&to_json_list(&[literal.as_str().into()]));
            }
            Node::Path(path) if as_json => {
                let found: Vec<_> = path.find(object)?.into_iter().cloned().collect();
                text.push_str(&to_json_list(&found));
            }
            Node::Text(literal) => text.push_str(literal),
            Node::Path(path) => {
                let found: Vec<_> = path.find(object)?.into_iter().map(to_text).collect();
                text.push_str(&found.join(" "));
            }
            Node::Range(over, nodes) => {
                for object in over.find(object)? {
                    write_nodes(text, nodes, object, as_json)?;
                }
            }
        }
    }
    Ok(())
}

/// Indented as Go does.
fn to_json_list(found: &[Value]) -> String {
    let mut text = Vec::new();
    let indent = PrettyFormatter::with_indent(b"    ");
    let mut to = Serializer::with_formatter(&mut text, indent);
    // Values can always be written.
    found.serialize(&mut to).ok();
    text.push(b'\n');
    String::from_utf8_lossy(&text).into_owned()
}

fn to_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
