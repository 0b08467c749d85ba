//! Checks of names before they become path segments of a URL.
//!
//! A name with a slash or query would address another resource.

use crate::{Error, Result};

/// Checks that a name is usable as an object name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InvalidName(
            "resource name may not be empty".to_owned(),
        ));
    }
    check_path_segment("resource name", name)
}

/// Checks that a name is usable as a namespace.
pub(crate) fn check_namespace(name: &str) -> Result<()> {
    check_path_segment("namespace", name)
}

fn check_path_segment(kind: &str, name: &str) -> Result<()> {
    match name_fault(name) {
        Some(fault) => Err(Error::InvalidName(format!(
            "invalid {kind} {name:?}: [{fault}]"
        ))),
        None => Ok(()),
    }
}

/// Describes the fault of a name in kubectl's words.
///
/// kubectl rejects dots, slashes and percent signs and escapes the other characters.
pub(crate) fn name_fault(name: &str) -> Option<String> {
    if matches!(name, "." | "..") {
        return Some(format!("may not be '{name}'"));
    }
    let changes_path =
        |c: &char| matches!(c, '/' | '%' | '?' | '#') || c.is_whitespace() || c.is_control();
    let found = name.chars().find(changes_path)?;
    Some(format!("may not contain {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_changes_url_path_is_rejected() {
        for (name, expected) in [
            ("", "resource name may not be empty"),
            (".", "invalid resource name \".\": [may not be '.']"),
            ("..", "invalid resource name \"..\": [may not be '..']"),
            (
                "a/b",
                "invalid resource name \"a/b\": [may not contain '/']",
            ),
            (
                "tr%61in",
                "invalid resource name \"tr%61in\": [may not contain '%']",
            ),
            (
                "train?dryRun=All",
                "invalid resource name \"train?dryRun=All\": [may not contain '?']",
            ),
            (
                "a#b",
                "invalid resource name \"a#b\": [may not contain '#']",
            ),
            (
                "a b",
                "invalid resource name \"a b\": [may not contain ' ']",
            ),
        ] {
            assert_eq!(check_name(name).unwrap_err().to_string(), expected);
        }
        assert_eq!(
            check_namespace("a/b").unwrap_err().to_string(),
            "invalid namespace \"a/b\": [may not contain '/']"
        );
        for name in ["a", "a.b", "a-1", "..a", "A:b_c"] {
            check_name(name).unwrap();
        }
    }
}
