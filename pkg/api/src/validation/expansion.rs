//! References to variables, `$(NAME)`, as kubelets read them.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Container;

use super::{Fault, Faults, Path, fault::cut, warnings::is_ours};
use crate::Role;

/// Bytes of a name that a message shows: the text stands before it.
const SHOWN: usize = 128;

/// The variables that a container has, by what its template says.
pub(super) struct Variables<'a> {
    role: Role,
    own: HashSet<&'a str>,
    /// Nobody knows the keys of what is read whole.
    are_known: bool,
}

impl<'a> Variables<'a> {
    pub(super) fn of(container: &'a Container, role: Role) -> Self {
        let own = container.env.iter().flatten();
        Self {
            role,
            own: own.map(|variable| variable.name.as_str()).collect(),
            are_known: container.env_from.as_ref().is_none_or(Vec::is_empty),
        }
    }

    /// A text whose references must all be of these: without one no kubelet makes the container. Each that is missing is told of once.
    pub(super) fn check(&self, text: &str, field: &Path<'_>, faults: &mut Faults) {
        if !self.are_known {
            return;
        }
        let is_of_a_service = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT");
        let mut told = HashSet::new();
        for name in references(text) {
            if !is_ours(name, self.role)
                && !is_of_a_service(name)
                && !self.own.contains(name)
                && told.insert(name)
            {
                let name = cut(name, SHOWN);
                let why = format_args!("missing value for {name:?}");
                faults.push(Fault::invalid(field, text, why));
            }
        }
    }
}

/// The names that a text refers to; two dollars stand for one.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while let Some((_, after)) = rest.split_once('$') {
            if let Some(after) = after.strip_prefix('$') {
                rest = after;
                continue;
            }
            rest = after;
            let Some(start) = rest.strip_prefix('(') else {
                continue;
            };
            // Where none ends no later one does.
            let (name, after) = start.split_once(')')?;
            rest = after;
            return Some(name);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_as_kubelets_find_them() {
        for (text, names) in [
            ("", vec![]),
            ("$(A)/$(B_C)", vec!["A", "B_C"]),
            ("$$(A)$(B)", vec!["B"]),
            ("$$$(A)", vec!["A"]),
            ("$A/${A}/(A)/$(A", vec![]),
            ("$$(A)$(A$(B)", vec!["A$(B"]),
            ("$($(A", vec![]),
        ] {
            assert_eq!(references(text).collect::<Vec<_>>(), names, "{text}");
        }
    }
}
