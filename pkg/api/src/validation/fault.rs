use std::fmt;

use serde_json::Value;

/// Bytes of a value that a message shows; who wrote a longer one knows it by its beginning.
pub(super) const SHOWN: usize = 512;
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
            detail: format!("Required value: {detail}"),
        }
    }

    /// A value that cannot be used.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl fmt::Display,
    ) -> Self {
        Self {
            kind: FaultKind::Invalid,
            field: field.into(),
            detail: format!("Invalid value: {}: {detail}", shown(&value.into(), SHOWN)),
        }
    }

    /// A value that is not one of `supported`.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let supported: Vec<_> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self {
            kind: FaultKind::NotSupported,
            field: field.into(),
            detail: format!(
                "Unsupported value: {}: supported values: {}",
                shown(&value.into(), SHOWN),
                supported.join(", ")
            ),
        }
    }

    /// A value that stands twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            kind: FaultKind::Duplicate,
            field: field.into(),
            detail: format!("Duplicate value: {}", shown(&value.into(), SHOWN)),
        }
    }

    /// A value that names something that is not there.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            kind: FaultKind::NotFound,
            field: field.into(),
            detail: format!("Not found: {}", shown(&value.into(), SHOWN)),
        }
    }

    /// A field that may not be there, or may not be changed.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            kind: FaultKind::Forbidden,
            field: field.into(),
            detail: format!("Forbidden: {detail}"),
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

/// A value as JSON, as many bytes of it.
pub(super) fn shown(value: &Value, most: usize) -> String {
    cut(&value.to_string(), most)
}

/// As many bytes of a text, but no part of a character.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let whole = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    format!("{}...", &text[..whole.unwrap_or(0)])
}
