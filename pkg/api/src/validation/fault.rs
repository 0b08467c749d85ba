use std::{fmt, io};

use serde::Serialize;

/// Bytes of a value that a message shows; who wrote a longer one knows it by its beginning.
pub(super) const SHOWN: usize = 512;
/// Bytes of what is said of it.
const SAID: usize = 1_024;
/// Nobody reads more of them, and those of an update are compared with each other.
pub(super) const MAX_FAULTS: usize = 1_000;
/// Bytes of a summary: it becomes a condition of a status, which has 32 KiB, and a few words about it.
const MAX_SUMMARY: usize = 32_000;

/// Kinds of faults, as the causes of a `Status` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The field must be there and is not.
    Required,
    /// The value cannot be used.
    Invalid,
    /// The value is not one of those allowed.
    NotSupported,
    /// The value stands twice where it may stand once.
    Duplicate,
    /// The value names something that is not there.
    NotFound,
    /// The value may not be there, or may not be changed.
    Forbidden,
    /// The value takes more room than it may.
    TooLong,
    /// The list or map has more items than it may.
    TooMany,
}

/// One fault of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind it is of.
    pub kind: FaultKind,
    /// Path of the field, as `spec.coordinator.template`.
    pub field: String,
    /// The value at fault, as JSON, and what to do about it.
    pub detail: String,
}

impl Fault {
    /// A field that must be there.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            kind: FaultKind::Required,
            field: field.into(),
            detail: format!("Required value: {}", said(detail)),
        }
    }

    /// A value that cannot be used.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Serialize,
        detail: impl fmt::Display,
    ) -> Self {
        Self {
            kind: FaultKind::Invalid,
            field: field.into(),
            detail: format!("Invalid value: {}: {}", shown(&value), said(detail)),
        }
    }

    /// A value that is not one of `supported`.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Serialize,
        supported: &[&str],
    ) -> Self {
        let supported: Vec<_> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self {
            kind: FaultKind::NotSupported,
            field: field.into(),
            detail: format!(
                "Unsupported value: {}: supported values: {}",
                shown(&value),
                supported.join(", ")
            ),
        }
    }

    /// A value that stands twice.
    pub fn duplicate(field: impl Into<String>, value: impl Serialize) -> Self {
        Self {
            kind: FaultKind::Duplicate,
            field: field.into(),
            detail: format!("Duplicate value: {}", shown(&value)),
        }
    }

    /// A value that names something that is not there.
    pub fn not_found(field: impl Into<String>, value: impl Serialize) -> Self {
        Self {
            kind: FaultKind::NotFound,
            field: field.into(),
            detail: format!("Not found: {}", shown(&value)),
        }
    }

    /// A field that may not be there, or may not be changed.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            kind: FaultKind::Forbidden,
            field: field.into(),
            detail: format!("Forbidden: {}", said(detail)),
        }
    }

    /// A value that takes more than `most` bytes.
    pub fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self {
            kind: FaultKind::TooLong,
            field: field.into(),
            detail: format!("Too long: may not be more than {most} bytes"),
        }
    }

    /// A list or map that has more items than it may, `count` where that is known.
    pub fn too_many(
        field: impl Into<String>,
        count: Option<usize>,
        detail: impl fmt::Display,
    ) -> Self {
        let count = count.map(|count| format!("{count}: ")).unwrap_or_default();
        Self {
            kind: FaultKind::TooMany,
            field: field.into(),
            detail: format!("Too many: {count}{detail}"),
        }
    }

    /// The reason of the `Status` cause, as Kubernetes names it.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FaultKind::Required => "FieldValueRequired",
            FaultKind::Invalid => "FieldValueInvalid",
            FaultKind::NotSupported => "FieldValueNotSupported",
            FaultKind::Duplicate => "FieldValueDuplicate",
            FaultKind::NotFound => "FieldValueNotFound",
            FaultKind::Forbidden => "FieldValueForbidden",
            FaultKind::TooLong => "FieldValueTooLong",
            FaultKind::TooMany => "FieldValueTooMany",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail)
    }
}

/// All faults in one line, as Kubernetes joins them; of too many the first.
pub fn summary(faults: &[Fault]) -> String {
    let all = match faults {
        [one] => one.to_string(),
        many => {
            let all: Vec<_> = many.iter().map(ToString::to_string).collect();
            format!("[{}]", all.join(", "))
        }
    };
    cut(&all, MAX_SUMMARY)
}

/// Faults as they are found, a thousand at most: an object of a few kilobytes can have millions of them.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.extend([fault]);
    }

    pub(super) fn contains(&self, fault: &Fault) -> bool {
        self.0.contains(fault)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_vec(self) -> Vec<Fault> {
        self.0
    }
}

impl Extend<Fault> for Faults {
    fn extend<T: IntoIterator<Item = Fault>>(&mut self, faults: T) {
        let room = MAX_FAULTS.saturating_sub(self.0.len());
        self.0.extend(faults.into_iter().take(room));
    }
}

/// A value as JSON, the beginning of it; what is not shown is neither copied nor written out.
fn shown(value: &impl Serialize) -> String {
    let mut start = Start(Vec::new());
    let is_whole = serde_json::to_writer(&mut start, value).is_ok();
    let text = start.0.utf8_chunks().next();
    let text = text.map_or("", |chunk| chunk.valid());
    format!("{text}{}", if is_whole { "" } else { "..." })
}

/// As many bytes as are shown of a value; there it ends.
struct Start(Vec<u8>);

impl io::Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = SHOWN - self.0.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let taken = &bytes[..bytes.len().min(room)];
        self.0.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is said of a value: it may quote others.
fn said(detail: impl fmt::Display) -> String {
    cut(&detail.to_string(), SAID)
}

/// As many bytes of a text, but no part of a character.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let whole = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    format!("{}...", &text[..whole.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_value_is_shown_and_no_half_of_a_character() {
        let long = "é".repeat(1_000);
        for (value, expected) in [
            ("", "\"\"".to_owned()),
            ("a\"b", "\"a\\\"b\"".to_owned()),
            (&"x".repeat(510), format!("\"{}\"", "x".repeat(510))),
            (&"x".repeat(511), format!("\"{}...", "x".repeat(511))),
            (&long, format!("\"{}...", "é".repeat(255))),
        ] {
            assert_eq!(shown(&value), expected);
        }
        assert_eq!(
            shown(&serde_json::json!({"a": [1, null]})),
            r#"{"a":[1,null]}"#
        );
    }

    #[test]
    fn a_thousand_faults_are_kept() {
        let mut faults = Faults::default();
        faults.extend((0..2_000).map(|i| Fault::invalid("f", i, "")));
        faults.push(Fault::required("f", ""));
        assert_eq!(faults.len(), MAX_FAULTS);
    }
}
