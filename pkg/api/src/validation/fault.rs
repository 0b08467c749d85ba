use std::{fmt, io};

use serde::Serialize;

/// Maximum length in bytes of a value in a message; the beginning identifies a longer one.
pub(super) const MAX_VALUE_LEN: usize = 512;
/// Maximum length in bytes of the detail after the value.
const MAX_DETAIL_LEN: usize = 1_024;
/// Maximum number of faults of one object. An update compares them with each other.
pub(super) const MAX_FAULTS: usize = 1_000;
/// Maximum length in bytes of a summary. It becomes the message of a condition, which is limited to
/// 32 KiB, with a few more words.
const MAX_SUMMARY_LEN: usize = 32_000;

/// Kinds of faults; each is a cause of a Kubernetes `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A required field is missing.
    Required,
    /// The value is invalid.
    Invalid,
    /// This program does not know the field of a pod template; the API server may know it.
    UnknownPodField,
    /// The value is not one of the supported values.
    NotSupported,
    /// The value must be unique and occurs twice.
    Duplicate,
    /// The value refers to something that does not exist.
    NotFound,
    /// The field must not be set, or must not be changed.
    Forbidden,
    /// The value is too long.
    TooLong,
    /// The list or map has too many items.
    TooMany,
}

/// One fault of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Path of the field, such as `spec.coordinator.template`.
    pub field: String,
    /// The value as JSON, and the rule that it breaks or the change that fixes it.
    pub detail: String,
}

impl Fault {
    /// Creates the fault of a required field that is missing.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            kind: FaultKind::Required,
            field: field.into(),
            detail: format!("Required value: {}", format_detail(detail)),
        }
    }

    /// Creates the fault of an invalid value.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Serialize,
        detail: impl fmt::Display,
    ) -> Self {
        Self {
            kind: FaultKind::Invalid,
            field: field.into(),
            detail: format!(
                "Invalid value: {}: {}",
                format_value(&value),
                format_detail(detail)
            ),
        }
    }

    /// Creates the fault of a value that is not one of `supported`.
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
                format_value(&value),
                supported.join(", ")
            ),
        }
    }

    /// Creates the fault of a value that occurs twice.
    pub fn duplicate(field: impl Into<String>, value: impl Serialize) -> Self {
        Self {
            kind: FaultKind::Duplicate,
            field: field.into(),
            detail: format!("Duplicate value: {}", format_value(&value)),
        }
    }

    /// Creates the fault of a reference to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Serialize) -> Self {
        Self {
            kind: FaultKind::NotFound,
            field: field.into(),
            detail: format!("Not found: {}", format_value(&value)),
        }
    }

    /// Creates the fault of a field that must not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            kind: FaultKind::Forbidden,
            field: field.into(),
            detail: format!("Forbidden: {}", format_detail(detail)),
        }
    }

    /// Creates the fault of a value of more than `max` bytes.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self {
            kind: FaultKind::TooLong,
            field: field.into(),
            detail: format!("Too long: may not be more than {max} bytes"),
        }
    }

    /// Creates the fault of a list or map with too many items, `count` if that is known.
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

    /// The reason of the `Status` cause in Kubernetes' terms.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FaultKind::Required => "FieldValueRequired",
            FaultKind::Invalid | FaultKind::UnknownPodField => "FieldValueInvalid",
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

/// Joins the faults in one line as Kubernetes does, truncated to 32,000 bytes.
pub fn summarize_faults(faults: &[Fault]) -> String {
    let all = match faults {
        [one] => one.to_string(),
        many => {
            let all: Vec<_> = many.iter().map(ToString::to_string).collect();
            format!("[{}]", all.join(", "))
        }
    };
    truncate_text(&all, MAX_SUMMARY_LEN)
}

/// Collects up to [`MAX_FAULTS`] faults: an object of a few kilobytes can have millions of them.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.extend([fault]);
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

/// Formats the beginning of a value as JSON, without serializing the rest.
fn format_value(value: &impl Serialize) -> String {
    let mut prefix = PrefixWriter(Vec::new());
    let is_whole = serde_json::to_writer(&mut prefix, value).is_ok();
    let text = prefix.0.utf8_chunks().next();
    let text = text.map_or("", |chunk| chunk.valid());
    format!("{text}{}", if is_whole { "" } else { "..." })
}

/// A writer that fails after [`MAX_VALUE_LEN`] bytes.
struct PrefixWriter(Vec<u8>);

impl io::Write for PrefixWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_VALUE_LEN - self.0.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let accepted = &bytes[..bytes.len().min(room)];
        self.0.extend_from_slice(accepted);
        Ok(accepted.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats and truncates a detail, which may quote other values.
fn format_detail(detail: impl fmt::Display) -> String {
    truncate_text(&detail.to_string(), MAX_DETAIL_LEN)
}

/// Truncates a text to at most `max` bytes at a character boundary, and appends `...` then.
pub fn truncate_text(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = (0..=max).rev().find(|end| text.is_char_boundary(*end));
    format!("{}...", &text[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_value_is_truncated_at_character_boundary() {
        let long = "é".repeat(1_000);
        for (value, expected) in [
            ("", "\"\"".to_owned()),
            ("a\"b", "\"a\\\"b\"".to_owned()),
            (&"x".repeat(510), format!("\"{}\"", "x".repeat(510))),
            (&"x".repeat(511), format!("\"{}...", "x".repeat(511))),
            (&long, format!("\"{}...", "é".repeat(255))),
        ] {
            assert_eq!(format_value(&value), expected);
        }
        assert_eq!(
            format_value(&serde_json::json!({"a": [1, null]})),
            r#"{"a":[1,null]}"#
        );
    }

    #[test]
    fn faults_beyond_limit_are_dropped() {
        let mut faults = Faults::default();
        faults.extend((0..2_000).map(|i| Fault::invalid("f", i, "")));
        faults.push(Fault::required("f", ""));
        assert_eq!(faults.into_vec().len(), MAX_FAULTS);
    }
}
