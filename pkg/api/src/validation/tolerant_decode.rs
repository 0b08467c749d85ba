use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment, Track};

use super::{
    fault::{Fault, FaultKind, MAX_VALUE_LEN, truncate_text},
    path::Path as FieldPath,
    strict_decode::{self, Findings},
};

/// Maximum number of fields with a wrong type that one object is decoded without.
const MAX_TYPE_FAULTS: usize = 16;

/// Fields that have a fault already; further faults at or below them are consequences.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldMask(Vec<String>);

impl FieldMask {
    /// Returns the mask with these fields added.
    pub(super) fn with_fields(&self, fields: Vec<String>) -> Self {
        Self(self.0.iter().cloned().chain(fields).collect())
    }

    /// Adds the fields of another mask.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the faults that are not consequences of a masked field.
    pub(super) fn unrelated_faults(&self, mut faults: Vec<Fault>) -> Vec<Fault> {
        // Mounts refer to the names of volumes.
        let names_unread = self.0.iter().any(|mask| mask.contains(".volumes"));
        faults.retain(|fault| {
            let is_masked = self.0.iter().any(|mask| is_at_or_below(&fault.field, mask));
            let is_consequence = names_unread && fault.kind == FaultKind::NotFound;
            !is_masked && !is_consequence
        });
        faults
    }
}

fn is_at_or_below(field: &str, mask: &str) -> bool {
    field
        .strip_prefix(mask)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// An object that was decoded without its undecodable fields.
pub(super) struct TolerantResult<T> {
    /// The object and the fields that were removed, or `None` if the rest is undecodable too.
    pub(super) decoded: Option<(T, FieldMask)>,
    /// Fields with a wrong type, with too many items, or that are too long.
    pub(super) wrong: Vec<Fault>,
    pub(super) unknown: Vec<Fault>,
}

/// Decodes the value at `field`, or an object if `field` is `None`; removes each field with a wrong
/// type and tries again.
///
/// One response thus reports all faults, not only the first type error.
pub(super) fn decode_tolerantly<T: DeserializeOwned>(
    mut object: Value,
    field: Option<FieldPath<'_>>,
) -> TolerantResult<T> {
    let prefix = field.map(|field| format!("{field}.")).unwrap_or_default();
    let mut masked = FieldMask::default();
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    for _ in 0..MAX_TYPE_FAULTS {
        let mut findings = Findings::default();
        let mut track = Track::new();
        let tracked = serde_path_to_error::Deserializer::new(&object, &mut track);
        let decoded = strict_decode::decode_strictly(tracked, field, &mut findings);
        findings.unknown.retain(|fault| !unknown.contains(fault));
        unknown.extend(findings.unknown);
        let error = match decoded {
            Ok(decoded) => {
                wrong.extend(findings.too_long);
                let decoded = Some((decoded, masked));
                return TolerantResult {
                    decoded,
                    wrong,
                    unknown,
                };
            }
            Err(error) => error,
        };
        let path = track.path();
        wrong.push(findings.too_many.unwrap_or_else(|| Fault {
            kind: FaultKind::Invalid,
            field: format!("{prefix}{path}"),
            detail: format!("Invalid value: {}", humanize_error(&error, &path)),
        }));
        let Some(removed) = remove_field(&mut object, &path) else {
            break;
        };
        masked.0.push(format!("{prefix}{removed}"));
    }
    TolerantResult {
        decoded: None,
        wrong,
        unknown,
    }
}

/// Rewrites serde's error in the terms of YAML. Hides the value if it may be that of an environment
/// variable.
fn humanize_error(error: &serde_json::Error, path: &Path) -> String {
    let text = error.to_string();
    let Some((found, expected)) = text.rsplit_once(", expected ") else {
        return truncate_text(&text, MAX_VALUE_LEN);
    };
    let found = if may_be_secret(path) {
        let kind = found.split(['"', '`']).next().unwrap_or_default();
        kind.trim_end().to_owned()
    } else {
        truncate_text(found, MAX_VALUE_LEN)
    };
    let expected = match expected {
        "i32" if found.starts_with("invalid value") => "a 32-bit integer",
        "a sequence" => "a list",
        "i32" | "i64" => "an integer",
        "a boolean" => "true or false",
        "Quantity" => r#"an integer or a string such as "0.5" or 500m"#,
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// Whether the path leads to environment variables.
fn may_be_secret(path: &Path) -> bool {
    path.iter()
        .any(|segment| matches!(segment, Segment::Map { key } if key == "env"))
}

/// Removes the innermost named field on `path`, and returns the path of that field.
fn remove_field(object: &mut Value, path: &Path) -> Option<String> {
    let segments: Vec<_> = path.iter().collect();
    let last = segments
        .iter()
        .rposition(|segment| matches!(segment, Segment::Map { .. }))?;
    let mut parent = object;
    let mut name = String::new();
    for segment in &segments[..last] {
        parent = match segment {
            Segment::Map { key } => parent.get_mut(key)?,
            Segment::Seq { index } => parent.get_mut(index)?,
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
        append_segment(&mut name, segment);
    }
    let Segment::Map { key } = segments[last] else {
        return None;
    };
    parent.as_object_mut()?.remove(key)?;
    append_segment(&mut name, segments[last]);
    Some(name)
}

fn append_segment(name: &mut String, segment: &Segment) {
    if !name.is_empty() && matches!(segment, Segment::Map { .. }) {
        name.push('.');
    }
    name.push_str(&segment.to_string());
}

/// Drops null fields, because the API server also treats them as unset.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
