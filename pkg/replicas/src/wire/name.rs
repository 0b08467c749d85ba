use crate::error::{Error, Result};

/// Maximum length of a Kubernetes name.
pub(super) const MAX_NAME_LEN: usize = 253;

/// Parses a namespace or name. Only valid names are safe in a URL path.
pub(super) fn parse_name(field: &str, value: &str) -> Result<String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let has_valid_ends = value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.ends_with(|c: char| c.is_ascii_alphanumeric());
    if value.len() <= MAX_NAME_LEN && has_valid_ends && value.chars().all(is_allowed) {
        return Ok(value.to_owned());
    }
    Err(Error::Invalid(if value.is_empty() {
        format!("{field} is missing")
    } else {
        format!("{field} is not a valid Kubernetes name")
    }))
}
