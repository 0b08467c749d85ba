//! Names become parts of an address as they are: what would make it another address is refused before.

use crate::{Error, Result};

/// Whether an object can be of this name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::Name("resource name may not be empty".to_owned()));
    }
    check("resource name", name)
}

/// Whether a namespace can be of this name.
pub(crate) fn check_namespace(name: &str) -> Result<()> {
    check("namespace", name)
}

fn check(what: &str, name: &str) -> Result<()> {
    match fault(name) {
        Some(fault) => Err(Error::Name(format!("invalid {what} {name:?}: [{fault}]"))),
        None => Ok(()),
    }
}

/// What is wrong with a name, in kubectl's words; it knows of dots, slashes and per cents, and escapes the others.
pub(crate) fn fault(name: &str) -> Option<String> {
    if matches!(name, "." | "..") {
        return Some(format!("may not be '{name}'"));
    }
    let leads_elsewhere =
        |c: &char| matches!(c, '/' | '%' | '?' | '#') || c.is_whitespace() || c.is_control();
    let found = name.chars().find(leads_elsewhere)?;
    Some(format!("may not contain {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for (name, told) in [
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
            assert_eq!(check_name(name).unwrap_err().to_string(), told);
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
