use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment, Track};

use super::{
    Fault, FaultKind,
    fault::{SHOWN, cut},
    strict::{self, Seen},
};

/// An object with more fields of a wrong type than this is not read further.
const MAX_TYPE_FAULTS: usize = 16;

/// Fields whose fault is known already: what else is found at or below them follows from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Masked(Vec<String>);

impl Masked {
    /// These fields too.
    pub(super) fn and(&self, fields: Vec<String>) -> Self {
        Self(self.0.iter().cloned().chain(fields).collect())
    }

    /// Those of `faults` that are about other fields, and do not follow from what could not be read.
    pub(super) fn outside(&self, mut faults: Vec<Fault>) -> Vec<Fault> {
        let names_unread = self.0.iter().any(|mask| has_names(mask));
        faults.retain(|fault| {
            let masked = self.0.iter().any(|mask| is_at_or_below(&fault.field, mask));
            let follows = names_unread && fault.kind == FaultKind::NotFound;
            !masked && !follows
        });
        faults
    }
}

/// Whether others name what stands in this field: volumes, containers, ports, claims.
fn has_names(mask: &str) -> bool {
    let within = [".volumes", ".ports", ".resourceClaims"];
    let ends = ["ontainers", ".name"];
    within.iter().any(|list| mask.contains(list)) || ends.iter().any(|end| mask.ends_with(end))
}

fn is_at_or_below(field: &str, mask: &str) -> bool {
    field
        .strip_prefix(mask)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What becomes of an object that is decoded without the fields whose type is wrong.
pub(super) struct Pieces<T> {
    /// The rest, if it makes an object.
    pub(super) decoded: Option<(T, Masked)>,
    /// Fields whose type is wrong, that have too many items, or that are too long.
    pub(super) wrong: Vec<Fault>,
    pub(super) unknown: Vec<Fault>,
}

/// Decodes as much of `object` as can be decoded.
pub(super) fn pieces<T: DeserializeOwned>(mut object: Value) -> Pieces<T> {
    let mut masked = Masked::default();
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    for _ in 0..MAX_TYPE_FAULTS {
        let mut seen = Seen::default();
        let mut track = Track::new();
        let tracked = serde_path_to_error::Deserializer::new(&object, &mut track);
        let read = strict::read(tracked, None, &mut seen);
        seen.unknown.retain(|fault| !unknown.contains(fault));
        unknown.extend(seen.unknown);
        let error = match read {
            Ok(read) => {
                wrong.extend(seen.too_long);
                let decoded = Some((read, masked));
                return Pieces {
                    decoded,
                    wrong,
                    unknown,
                };
            }
            Err(error) => error,
        };
        let path = track.path();
        wrong.push(seen.too_many.unwrap_or_else(|| Fault {
            kind: FaultKind::Invalid,
            field: path.to_string(),
            detail: format!("Invalid value: {}", in_plain_words(&error, &path)),
        }));
        let Some(removed) = remove(&mut object, &path) else {
            break;
        };
        masked.0.push(removed);
    }
    Pieces {
        decoded: None,
        wrong,
        unknown,
    }
}

/// What serde expected, as people who write YAML call it. What it found is shown, but for what may be the value of a variable.
fn in_plain_words(error: &serde_json::Error, path: &Path) -> String {
    let text = error.to_string();
    let Some((found, expected)) = text.rsplit_once(", expected ") else {
        return cut(&text, SHOWN);
    };
    let found = if is_secret(path) {
        let kind = found.split(['"', '`']).next().unwrap_or_default();
        kind.trim_end().to_owned()
    } else {
        cut(found, SHOWN)
    };
    let expected = match expected {
        "i32" if found.starts_with("invalid value") => "one of 32 bits",
        "a sequence" => "a list",
        "i32" | "i64" => "a whole number",
        "a boolean" => "true or false",
        "Quantity" => r#"a whole number or a text, as "0.5" or 500m"#,
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// Whether this is of a variable, or of their list.
fn is_secret(path: &Path) -> bool {
    path.iter()
        .any(|segment| matches!(segment, Segment::Map { key } if key == "env"))
}

/// Removes the innermost named field that leads to `path`, and returns its own path.
fn remove(object: &mut Value, path: &Path) -> Option<String> {
    let segments: Vec<_> = path.iter().collect();
    let last = segments
        .iter()
        .rposition(|segment| matches!(segment, Segment::Map { .. }))?;
    let mut place = object;
    let mut name = String::new();
    for segment in &segments[..last] {
        place = match segment {
            Segment::Map { key } => place.get_mut(key)?,
            Segment::Seq { index } => place.get_mut(index)?,
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
        append(&mut name, segment);
    }
    let Segment::Map { key } = segments[last] else {
        return None;
    };
    place.as_object_mut()?.remove(key)?;
    append(&mut name, segments[last]);
    Some(name)
}

fn append(name: &mut String, segment: &Segment) {
    if !name.is_empty() && matches!(segment, Segment::Map { .. }) {
        name.push('.');
    }
    name.push_str(&segment.to_string());
}
