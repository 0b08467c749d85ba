//! The types of scalars and keys, as in go-yaml v2, which kubectl uses.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Number, Value};

const TRUE: [&str; 11] = [
    "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON",
];
const FALSE: [&str; 11] = [
    "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
];
const NULL: [&str; 5] = ["", "~", "null", "Null", "NULL"];
const INFINITE: [&str; 3] = [".inf", ".Inf", ".INF"];
const NOT_A_NUMBER: [&str; 3] = [".nan", ".NaN", ".NAN"];

/// The value of a scalar without quotes and tag.
///
/// # Errors
/// If it is an infinite number, which JSON does not have.
pub(crate) fn resolve_plain(text: &str) -> Result<Value, String> {
    if TRUE.contains(&text) {
        return Ok(true.into());
    }
    if FALSE.contains(&text) {
        return Ok(false.into());
    }
    if NULL.contains(&text) {
        return Ok(Value::Null);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if INFINITE.contains(&unsigned) || NOT_A_NUMBER.contains(&text) {
        return Err(format!(
            "{text} is not a number in JSON; quote it to use it as text"
        ));
    }
    let number = match text.as_bytes().first() {
        Some(b'.') => parse_float(text),
        Some(b'0'..=b'9' | b'+' | b'-') => {
            let digits = text.replace('_', "");
            parse_integer(&digits).or_else(|| parse_float(&digits))
        }
        _ => None,
    };
    Ok(number.map_or_else(|| text.into(), Value::Number))
}

/// The value of a scalar with this core tag, for example `int` for `!!int`.
///
/// # Errors
/// If the text has another type.
pub(crate) fn resolve_tagged(text: &str, tag: &str) -> Result<Value, String> {
    let mismatch = || format!("cannot decode {text:?} as !!{tag}");
    if tag == "binary" {
        let decoded = STANDARD.decode(without_line_breaks(text)).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        return decoded.map(Value::from).ok_or_else(mismatch);
    }
    let value = resolve_plain(text)?;
    match (tag, &value) {
        ("int", Value::Number(number)) if !number.is_f64() => Ok(value),
        ("float", Value::Number(_)) | ("bool", Value::Bool(_)) | ("null", Value::Null) => Ok(value),
        ("int" | "float" | "bool" | "null", _) => Err(mismatch()),
        _ => Ok(text.into()),
    }
}

/// The key of a JSON object for a key of a YAML mapping.
///
/// # Errors
/// If it is null, a collection, or another number than an integer of 64 bits.
pub(crate) fn to_key(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) if number.is_i64() => Ok(number.to_string()),
        other => Err(format!("unsupported key {other}; quote it")),
    }
}

/// The base64 text without line breaks, which Go's decoder skips.
pub(crate) fn without_line_breaks(text: &str) -> String {
    text.replace(['\r', '\n'], "")
}

/// The number as kubectl sends it: an integer if it has an integral value that fits, or else a
/// 64-bit float.
pub(crate) fn normalize_number(number: &Number) -> Number {
    let as_float = || {
        let float = number.as_f64()?;
        // Rust prints floats without exponent.
        let text = float.to_string();
        let signed = text.parse::<i64>().map(Number::from);
        let integer = signed.or_else(|_| text.parse::<u64>().map(Number::from));
        integer.ok().or_else(|| Number::from_f64(float))
    };
    let integer = number.as_i64().map(Number::from);
    integer.or_else(as_float).unwrap_or_else(|| number.clone())
}

fn parse_integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // from_str_radix accepts a second sign.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    let signed = i64::try_from(value).map(Number::from);
    let unsigned = || u64::try_from(value).map(Number::from);
    signed.or_else(|_| unsigned()).ok()
}

/// Numbers beyond the range of 64-bit floats are text.
fn parse_float(text: &str) -> Option<Number> {
    // Rust accepts the same numbers, and words such as "inf".
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let float: f64 = text.chars().all(is_number).then(|| text.parse().ok())??;
    Number::from_f64(float)
}
