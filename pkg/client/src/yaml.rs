//! YAML and JSON as kubectl reads them: scalars of YAML 1.1, keys as text, numbers of JSON.
//!
//! serde-saphyr differs (docs/upstream.md), so this builds on its parser. See docs/decisions/0036.

mod scalar;

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Marker, Options, Parser, ScalarStyle, ScanError, StrInput, Tag};
use serde_json::{Map, Value};

pub(crate) use scalar::without_line_breaks;
use scalar::{normalize_number, resolve_plain, resolve_tagged, to_key};

/// As in `serde_json`, so that no recursion overflows the stack.
const MAX_DEPTH: usize = 128;
/// Bounds the memory of nested aliases.
const MAX_ALIASED_NODES: usize = 100_000;
const CORE_TAGS: &str = "tag:yaml.org,2002:";

/// The documents of a text.
#[derive(Debug, Default)]
pub struct Documents {
    /// The documents. Empty documents are null.
    pub values: Vec<Value>,
    /// Keys that are read as something else than written.
    pub warnings: Vec<String>,
}

/// Decodes a file in UTF-8, or in UTF-16 with a byte order mark, which Windows PowerShell writes.
///
/// # Errors
/// If it is invalid in this encoding.
pub fn decode_text(bytes: Vec<u8>) -> Result<String, String> {
    let utf16 = |to_unit: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks(2).map(|pair| match *pair {
            [first, second] => to_unit([first, second]),
            // A lone surrogate, which is invalid like the single byte.
            _ => 0xD800,
        });
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.map_err(|_| "the text is not valid UTF-16".to_owned())
    };
    match bytes.as_slice() {
        [0xFF, 0xFE, ..] => utf16(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => utf16(u16::from_be_bytes),
        _ => {
            let text = String::from_utf8(bytes);
            let mut text = text.map_err(|_| "the text is not valid UTF-8".to_owned())?;
            if text.starts_with('\u{feff}') {
                text.remove(0);
            }
            Ok(text)
        }
    }
}

/// Parses a manifest with any number of documents: JSON if it starts with `{`, or else YAML.
///
/// # Errors
/// With the position of the mistake.
pub fn parse_manifest(text: &str) -> Result<Documents, String> {
    if !text.trim_start().starts_with('{') {
        return parse_yaml(text);
    }
    let values = serde_json::Deserializer::from_str(text).into_iter();
    let values: Result<Vec<_>, _> = values.collect();
    let mut values = values.map_err(|error| error.to_string())?;
    values.iter_mut().for_each(normalize_numbers);
    Ok(Documents {
        values,
        warnings: Vec::new(),
    })
}

fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => *number = normalize_number(number),
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        _ => {}
    }
}

/// Parses YAML with any number of documents.
///
/// # Errors
/// With the position of the mistake.
pub fn parse_yaml(text: &str) -> Result<Documents, String> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut reader = Reader {
        parser: Parser::new_from_str_with_options(text, options),
        anchors: HashMap::new(),
        aliased_nodes: 0,
        warnings: Vec::new(),
    };
    let mut values = Vec::new();
    while let Some((event, at)) = reader.next()? {
        match event {
            Event::DocumentStart(..) => reader.anchors.clear(),
            Event::StreamStart | Event::DocumentEnd | Event::StreamEnd => {}
            node => values.push(reader.read_node(node, at, 1)?.value),
        }
    }
    values.iter_mut().for_each(normalize_numbers);
    Ok(Documents {
        values,
        warnings: reader.warnings,
    })
}

/// A value with the number of its nodes and levels.
#[derive(Clone)]
struct Node {
    value: Value,
    nodes: usize,
    depth: usize,
}

impl Node {
    fn scalar(value: Value) -> Self {
        Self {
            value,
            nodes: 1,
            depth: 1,
        }
    }

    fn add(&mut self, child: &Self) {
        self.nodes += child.nodes;
        self.depth = self.depth.max(child.depth + 1);
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    aliased_nodes: usize,
    warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    /// The next event with its position.
    fn next(&mut self) -> Result<Option<(Event<'a>, Marker)>, String> {
        let next = self.parser.next().transpose();
        let next = next.map_err(|error: ScanError| fault_at(error.marker(), &error.info()))?;
        Ok(next.map(|(event, span)| (event, span.start)))
    }

    /// The next event inside a collection.
    fn next_inside(&mut self, collection: Marker) -> Result<(Event<'a>, Marker), String> {
        let next = self.next()?;
        next.ok_or_else(|| fault_at(&collection, "the collection has no end"))
    }

    /// Reads the node that starts with this event.
    fn read_node(&mut self, event: Event<'a>, at: Marker, depth: usize) -> Result<Node, String> {
        if depth > MAX_DEPTH {
            return Err(fault_at(&at, "the collections are nested too deeply"));
        }
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = resolve_scalar(&text, style, tag.as_deref());
                let value = value.map_err(|fault| fault_at(&at, &fault))?;
                let mut node = Node::scalar(value);
                // Long texts count as much as the memory that they need.
                node.nodes += text.len() / 64;
                (anchor, node)
            }
            Event::SequenceStart(_, anchor, _) => (anchor, self.read_sequence(at, depth)?),
            Event::MappingStart(_, anchor, _) => (anchor, self.read_mapping(at, depth)?),
            Event::Alias(anchor) => return self.copy_anchor(anchor, at, depth),
            other => return Err(fault_at(&at, &format!("unexpected {other:?}"))),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn copy_anchor(&mut self, anchor: usize, at: Marker, depth: usize) -> Result<Node, String> {
        let found = self.anchors.get(&anchor);
        let node = found.ok_or_else(|| fault_at(&at, "the anchor contains itself"))?;
        self.aliased_nodes += node.nodes;
        if depth + node.depth > MAX_DEPTH || self.aliased_nodes > MAX_ALIASED_NODES {
            return Err(fault_at(&at, "the document contains excessive aliasing"));
        }
        Ok(node.clone())
    }

    fn read_sequence(&mut self, at: Marker, depth: usize) -> Result<Node, String> {
        let mut node = Node::scalar(Value::Null);
        let mut items = Vec::new();
        loop {
            let (event, item_at) = self.next_inside(at)?;
            if event == Event::SequenceEnd {
                node.value = items.into();
                return Ok(node);
            }
            let item = self.read_node(event, item_at, depth + 1)?;
            node.add(&item);
            items.push(item.value);
        }
    }

    fn read_mapping(&mut self, at: Marker, depth: usize) -> Result<Node, String> {
        let mut node = Node::scalar(Value::Null);
        let (mut fields, mut written_keys) = (Map::new(), HashSet::new());
        loop {
            let (event, key_at) = self.next_inside(at)?;
            if event == Event::MappingEnd {
                node.value = fields.into();
                return Ok(node);
            }
            let written = plain_text(&event);
            let key = self.read_node(event, key_at, depth + 1)?.value;
            let (event, value_at) = self.next_inside(at)?;
            let value = self.read_node(event, value_at, depth + 1)?;
            node.add(&value);
            if written.as_deref() == Some("<<") {
                // Like kubectl: replaces fields that are written before it.
                let merged = merge_sources(value.value);
                fields.extend(merged.map_err(|fault| fault_at(&value_at, fault))?);
                continue;
            }
            let key = to_key(key).map_err(|fault| fault_at(&key_at, &fault))?;
            if let Some(written) = written.filter(|written| *written != key) {
                self.warnings.push(fault_at(
                    &key_at,
                    &format!(
                        "the key {written} is read as {key:?}, as kubectl does; quote it to keep it"
                    ),
                ));
            }
            if !written_keys.insert(key.clone()) {
                return Err(fault_at(&key_at, &format!("duplicate key {key:?}")));
            }
            fields.insert(key, value.value);
        }
    }
}

/// The text of a scalar without quotes and tag.
fn plain_text(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, _, None) => Some(text.to_string()),
        _ => None,
    }
}

fn resolve_scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    match tag.map(|tag| tag.suffix_in_namespace(CORE_TAGS)) {
        Some(Some(core)) => resolve_tagged(text, &core),
        None if style == ScalarStyle::Plain => resolve_plain(text),
        // Quotes and tags of applications make it text.
        Some(None) | None => Ok(text.into()),
    }
}

/// The fields of a merge key's value. Earlier mappings of a list have precedence.
fn merge_sources(value: Value) -> Result<Map<String, Value>, &'static str> {
    let sources = match value {
        Value::Array(items) => items,
        one => vec![one],
    };
    let mut merged = Map::new();
    for source in sources.into_iter().rev() {
        let Value::Object(fields) = source else {
            return Err("a merge key needs a mapping or a list of mappings");
        };
        merged.extend(fields);
    }
    Ok(merged)
}

fn fault_at(at: &Marker, fault: &str) -> String {
    format!("line {} column {}: {fault}", at.line(), at.col() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_keys_are_warned_about_with_their_position() {
        let parsed = parse_yaml("a: 1\n\"on\": 2\nmap:\n  on: x\n  0x10: y\n  5: z\n").unwrap();
        assert_eq!(
            parsed.warnings,
            [
                "line 4 column 3: the key on is read as \"true\", as kubectl does; quote it to keep it",
                "line 5 column 3: the key 0x10 is read as \"16\", as kubectl does; quote it to keep it",
            ]
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_position() {
        for (text, expected) in [
            (
                "a: 1\nb: {c: 2, c: 3}",
                "line 2 column 11: duplicate key \"c\"",
            ),
            (
                "a: .inf",
                "line 1 column 4: .inf is not a number in JSON; quote it to use it as text",
            ),
            (
                "a: !!int x",
                "line 1 column 10: cannot decode \"x\" as !!int",
            ),
            (
                "m: {<<: 1}",
                "line 1 column 9: a merge key needs a mapping or a list of mappings",
            ),
            (
                "[a]: 1",
                "line 1 column 1: unsupported key [\"a\"]; quote it",
            ),
            ("&a [*a]", "line 1 column 5: the anchor contains itself"),
        ] {
            assert_eq!(parse_yaml(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn nested_aliases_and_collections_are_bounded() {
        let nested = "[".repeat(200) + &"]".repeat(200);
        let error = parse_yaml(&nested).unwrap_err();
        assert!(
            error.ends_with("the collections are nested too deeply"),
            "{error}"
        );
        let chain = (1..200).map(|i| format!("a{i}: &a{i} [*a{}]", i - 1));
        let chain = chain.collect::<Vec<_>>().join("\n");
        let error = parse_yaml(&format!("a0: &a0 x\n{chain}")).unwrap_err();
        assert!(
            error.ends_with("the document contains excessive aliasing"),
            "{error}"
        );
    }

    #[test]
    fn half_of_a_utf_16_unit_is_rejected() {
        assert_eq!(decode_text(vec![0xFF, 0xFE, b'a', 0]).unwrap(), "a");
        decode_text(vec![0xFF, 0xFE, b'a', 0, b'b']).unwrap_err();
    }
}
