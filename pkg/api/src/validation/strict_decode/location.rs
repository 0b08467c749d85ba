use std::fmt;

use serde::de::Error;

use super::super::{
    fault::Fault,
    path::{Path, SPEC},
};

/// Maximum number of items of one list in a spec. Real lists (container variables) have hundreds.
pub(super) const MAX_LIST_ITEMS: usize = 1_000;
/// Maximum number of items of all lists in a spec. Real specs have thousands; this many
/// empty volumes take 64 MB.
pub(super) const MAX_TOTAL_ITEMS: usize = 20_000;
/// Maximum length in bytes of all names and strings in a spec, because the cache keeps every job in
/// memory. Client-side `kubectl apply` has the same limit: it stores the manifest in an annotation.
pub(super) const MAX_SPEC_TEXT: usize = 256 << 10;
/// Maximum number of reported unknown fields; each is compared with all known fields.
pub(super) const MAX_UNKNOWN: usize = 100;

/// The findings of decoding, in addition to the object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Unknown fields.
    pub(crate) unknown: Vec<Fault>,
    /// The list with too many items, at which decoding stopped.
    pub(crate) too_many: Option<Fault>,
    /// The fault of a spec with too much text.
    pub(crate) too_long: Option<Fault>,
    /// Length in bytes of all names and strings so far.
    pub(super) text: usize,
    /// Number of list items in the spec so far.
    items: usize,
}

/// The position of a value.
pub(super) struct Location<'a> {
    /// `None` for the object itself.
    pub(super) path: Option<Path<'a>>,
    /// The known fields of the struct at this position; empty if it is not a struct.
    pub(super) fields: &'static [&'static str],
    pub(super) findings: &'a mut Findings,
}

impl Location<'_> {
    pub(super) fn without_fields(self) -> Self {
        Self {
            fields: &[],
            ..self
        }
    }

    /// Only the spec is limited: a status lists thousands of replicas.
    pub(super) fn is_in_spec(&self) -> bool {
        self.path.is_some_and(|path| path.root() == SPEC.name())
    }

    /// Counts one item of the list at this position.
    pub(super) fn count_item<E: Error>(&mut self) -> Result<(), E> {
        if !self.is_in_spec() {
            return Ok(());
        }
        self.findings.items += 1;
        if self.findings.items <= MAX_TOTAL_ITEMS {
            return Ok(());
        }
        let why = format_args!(
            "all lists of the spec must have at most {MAX_TOTAL_ITEMS} items in total"
        );
        Err(self.reject_items(None, why))
    }

    /// Records that the list at this position has too many items.
    pub(super) fn reject_items<E: Error>(
        &mut self,
        count: Option<usize>,
        why: fmt::Arguments<'_>,
    ) -> E {
        let field = self.path.map(String::from).unwrap_or_default();
        let fault = Fault::too_many(field, count, why);
        let error = E::custom(&fault);
        self.findings.too_many = Some(fault);
        error
    }
}

pub(super) fn spec_too_long() -> Fault {
    let mut fault = Fault::too_long(SPEC, MAX_SPEC_TEXT);
    fault
        .detail
        .push_str("; keep large files in a ConfigMap and mount it");
    fault
}
