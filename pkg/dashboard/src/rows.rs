//! The rows of a table that a page has, so that only changes are sent.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

/// The rows that were sent to one page.
#[derive(Debug)]
pub(crate) struct SentRows<R> {
    /// Rows by key. `None` before the first update.
    rows: Option<HashMap<String, R>>,
}

impl<R: PartialEq + Serialize> SentRows<R> {
    pub(crate) const fn new() -> Self {
        Self { rows: None }
    }

    /// The event that turns the rows of the page into these rows. `None` if it has them already.
    pub(crate) fn update(&mut self, rows: Vec<(String, R)>) -> Option<Value> {
        let reset = self.rows.is_none();
        let mut old = self.rows.take().unwrap_or_default();
        let mut new = HashMap::with_capacity(rows.len());
        let mut changed = Vec::new();
        for (key, row) in rows {
            if old.remove(&key).as_ref() != Some(&row) {
                changed.push(json!(row));
            }
            new.insert(key, row);
        }
        self.rows = Some(new);
        let mut removed: Vec<_> = old.into_keys().collect();
        removed.sort_unstable();
        (reset || !changed.is_empty() || !removed.is_empty()).then(|| {
            let mut event = json!({"reset": reset, "removed": removed});
            // `json!` would copy all rows.
            event["changed"] = Value::Array(changed);
            event
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_has_changed_and_removed_rows_only() {
        let mut sent = SentRows::new();
        let mut update = |rows: &[(&str, i32)]| {
            let rows = rows.iter().map(|(key, row)| ((*key).to_owned(), *row));
            sent.update(rows.collect())
        };
        let event = |reset: bool, changed: &[i32], removed: &[&str]| {
            Some(json!({"reset": reset, "changed": changed, "removed": removed}))
        };
        assert_eq!(update(&[]), event(true, &[], &[]), "the page is empty");
        assert_eq!(update(&[("a", 1), ("b", 2)]), event(false, &[1, 2], &[]));
        assert_eq!(update(&[("b", 2), ("a", 1)]), None);
        assert_eq!(update(&[("a", 1), ("c", 3)]), event(false, &[3], &["b"]));
        assert_eq!(update(&[("a", 4), ("c", 3)]), event(false, &[4], &[]));
        assert_eq!(update(&[]), event(false, &[], &["a", "c"]));
    }
}
