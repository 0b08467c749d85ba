use std::fmt;

use jsonpath_rust::{
    parser::{model::JpQuery, parse_json_path},
    query::js_path_process,
};
use serde_json::Value;

use crate::{Error, Result};

/// A path into an object, as `.items[*].metadata.name`, in kubectl's dialect.
#[derive(Clone, Debug, PartialEq)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(i64),
    /// Several paths from the same place.
    Union(Vec<Path>),
    /// Steps with the syntax of RFC 9535: wildcards, slices, filters and descents.
    Standard(JpQuery),
}

impl Path {
    /// Reads one, without its braces.
    ///
    /// # Errors
    /// [`Error::JsonPath`] with what is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let mut rest = text.trim();
        let mut steps = Vec::new();
        while let Some(c) = rest.chars().next() {
            rest = match c {
                // The current object.
                '$' | '@' => &rest[1..],
                '.' if rest.starts_with("..") => {
                    let (name, after) = take_name(&rest[2..]);
                    if name.is_empty() && !after.starts_with('[') {
                        return Err(jsonpath_error("invalid array index or field after .."));
                    }
                    let (selector, after) = match name.as_str() {
                        "" => take_bracket(after)?,
                        "*" => ("*", after),
                        _ => ("", after),
                    };
                    let selector = if selector.is_empty() {
                        json_literal(&name)
                    } else {
                        selector_of(selector)?
                    };
                    steps.push(parse_standard(&format!("$..[{selector}]"))?);
                    after
                }
                '.' => {
                    let (name, after) = take_name(&rest[1..]);
                    match name.as_str() {
                        "" => {}
                        "*" => steps.push(parse_standard("$[*]")?),
                        _ => steps.push(Step::Key(name)),
                    }
                    after
                }
                '[' => {
                    let (inside, after) = take_bracket(rest)?;
                    steps.push(parse_array(inside)?);
                    after
                }
                c => {
                    return Err(jsonpath_error(format_args!(
                        "unrecognized character in action: {c:?}"
                    )));
                }
            };
        }
        Ok(Self(steps))
    }

    /// Parses a path of custom columns: braces and the first dot may be left out.
    ///
    /// # Errors
    /// [`Error::JsonPath`] with what is wrong.
    pub fn parse_relaxed(text: &str) -> Result<Self> {
        let text = text.trim();
        let wrong = |reason: &str| {
            jsonpath_error(format_args!("unexpected path string {text:?}: {reason}"))
        };
        let inside = match text.strip_prefix('{') {
            Some(inside) => inside
                .strip_suffix('}')
                .ok_or_else(|| wrong("a brace is not closed"))?,
            None => text,
        };
        let path = if inside.starts_with(['.', '[', '$', '@']) {
            Self::parse(inside)
        } else {
            Self::parse(&format!(".{inside}"))
        };
        path.map_err(|error| wrong(&error.to_string()))
    }

    /// Finds the values at the path. Empty if a field is missing.
    ///
    /// # Errors
    /// An index beyond the end of a list, as in kubectl.
    pub fn find<'a>(&self, object: &'a Value) -> Result<Vec<&'a Value>> {
        let mut found = vec![object];
        for step in &self.0 {
            let mut next = Vec::new();
            match step {
                Step::Key(key) => next.extend(found.iter().filter_map(|value| value.get(key))),
                Step::Index(index) => {
                    for list in found.iter().filter_map(|value| value.as_array()) {
                        next.push(item_at(list, *index)?);
                    }
                }
                Step::Union(paths) => {
                    for path in paths {
                        for value in &found {
                            next.extend(path.find(value)?);
                        }
                    }
                }
                Step::Standard(query) => {
                    for value in found {
                        let all = js_path_process(query, value).map_err(jsonpath_error)?;
                        next.extend(all.into_iter().map(|one| one.val));
                    }
                }
            }
            found = next;
        }
        Ok(found)
    }
}

fn item_at(list: &[Value], index: i64) -> Result<&Value> {
    let from_start = match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => usize::try_from(index.unsigned_abs())
            .ok()
            .and_then(|back| list.len().checked_sub(back)),
    };
    let value = from_start.and_then(|index| list.get(index));
    value.ok_or_else(|| {
        let length = list.len();
        jsonpath_error(format_args!(
            "array index out of bounds: index {index}, length {length}"
        ))
    })
}

/// Splits off a field name with backslash escapes. Returns the name and the rest.
fn take_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => return (name, &text[at..]),
            c if c.is_whitespace() => return (name, text[at..].trim_start()),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Splits off the text in brackets. Returns it and the rest.
fn take_bracket(text: &str) -> Result<(&str, &str)> {
    let mut depth = 0;
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            ('[', None) => depth += 1,
            (']', None) => {
                depth -= 1;
                if depth == 0 {
                    return Ok((text[1..at].trim(), &text[at + 1..]));
                }
            }
            _ => {}
        }
    }
    Err(jsonpath_error("unterminated array"))
}

fn parse_array(inside: &str) -> Result<Step> {
    if inside.starts_with('?') {
        return parse_standard(&format!("$[{}]", selector_of(inside)?));
    }
    let parts = split_parts(inside);
    if parts.len() > 1 {
        let one = |part: &&str| Ok(Path(vec![parse_array(part.trim())?]));
        return Ok(Step::Union(parts.iter().map(one).collect::<Result<_>>()?));
    }
    if let Some(key) = in_quotes(inside) {
        // It is a path itself.
        return Ok(Step::Union(vec![Path::parse(&format!(".{key}"))?]));
    }
    if let Ok(index) = inside.parse() {
        return Ok(Step::Index(index));
    }
    parse_standard(&format!("$[{}]", selector_of(inside)?))
}

/// Splits at commas outside of quotes.
fn split_parts(text: &str) -> Vec<&str> {
    let mut quote = None;
    text.split(|c| {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            _ => {}
        }
        c == ',' && quote.is_none()
    })
    .collect()
}

fn selector_of(inside: &str) -> Result<String> {
    let Some(filter) = inside.strip_prefix('?') else {
        let is_slice = |c: char| c.is_ascii_digit() || matches!(c, ':' | '-' | '*');
        return if inside == "*" || (!inside.is_empty() && inside.chars().all(is_slice)) {
            Ok(inside.to_owned())
        } else {
            Err(jsonpath_error(format_args!("invalid array index {inside}")))
        };
    };
    let filter = filter.trim();
    let Some(filter) = filter.strip_prefix('(').and_then(|f| f.strip_suffix(')')) else {
        return Err(jsonpath_error("unterminated filter"));
    };
    for operator in ["==", "!=", "<=", ">=", "<", ">"] {
        if let Some((left, right)) = filter.split_once(operator) {
            let (left, right) = (parse_operand(left)?, parse_operand(right)?);
            // As in kubectl, objects without the field match nothing, not even !=.
            let there = |side: &str| format!("({side})");
            let both: Vec<_> = [&left, &right]
                .into_iter()
                .filter(|side| side.starts_with('@'))
                .map(|side| there(side))
                .collect();
            let mut all = both;
            all.push(format!("{left} {operator} {right}"));
            return Ok(format!("?{}", all.join(" && ")));
        }
    }
    Ok(format!("?{}", parse_operand(filter)?))
}

/// Parses an operand: quoted text, a number, a boolean, or a path from the current object.
fn parse_operand(text: &str) -> Result<String> {
    let text = text.trim();
    if let Some(inside) = in_quotes(text) {
        return Ok(json_literal(inside));
    }
    if matches!(text, "true" | "false") || text.parse::<f64>().is_ok() {
        return Ok(text.to_owned());
    }
    let Some(path) = text.strip_prefix('@') else {
        return Err(jsonpath_error(format_args!(
            "unrecognized filter operand {text}; it is a path as @.type, a number, or text in quotes"
        )));
    };
    let mut standard = "@".to_owned();
    let Path(steps) = Path::parse(path)?;
    for step in steps {
        match step {
            Step::Key(key) => standard.extend(["[", &json_literal(&key), "]"]),
            Step::Index(index) => standard.extend(["[", &index.to_string(), "]"]),
            Step::Union(_) | Step::Standard(_) => {
                return Err(jsonpath_error(format_args!(
                    "only fields and indices are possible in the filter operand {text}"
                )));
            }
        }
    }
    Ok(standard)
}

fn in_quotes(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inside.contains(quote)).then_some(inside)
}

/// Parses quoted text with escapes. `None` for other text.
pub fn parse_quoted(text: &str) -> Result<Option<String>> {
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        return Ok(None);
    };
    let inside = text
        .strip_prefix(quote)
        .and_then(|text| text.strip_suffix(quote))
        .ok_or_else(|| jsonpath_error("unterminated quoted string"))?;
    let mut unescaped = String::new();
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            unescaped.push(c);
            continue;
        }
        unescaped.push(match chars.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(c @ ('\\' | '"' | '\'')) => c,
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(jsonpath_error(format_args!("unknown escape \\{other}")));
            }
        });
    }
    Ok(Some(unescaped))
}

/// Text as a literal of RFC 9535, which has JSON's escapes.
fn json_literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn parse_standard(query: &str) -> Result<Step> {
    match parse_json_path(query) {
        Ok(query) => Ok(Step::Standard(query)),
        Err(error) => Err(jsonpath_error(error)),
    }
}

/// An error in a path or template.
pub fn jsonpath_error(message: impl fmt::Display) -> Error {
    Error::JsonPath(message.to_string())
}
