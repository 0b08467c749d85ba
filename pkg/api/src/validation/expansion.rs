//! References to variables, `$(NAME)`, as kubelets read them.

use k8s_openapi::api::core::v1::Container;

use super::{Fault, Path, warnings::is_ours};
use crate::Role;

/// A text whose references must all be of variables that the container has: without one no kubelet makes it.
pub(super) fn check(
    text: &str,
    container: &Container,
    role: Role,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    // Nobody knows the keys of what is read whole.
    if container
        .env_from
        .as_ref()
        .is_some_and(|from| !from.is_empty())
    {
        return;
    }
    let is_of_a_service = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT");
    let own: Vec<_> = container
        .env
        .iter()
        .flatten()
        .map(|v| v.name.as_str())
        .collect();
    for name in references(text) {
        if !is_ours(name, role) && !is_of_a_service(name) && !own.contains(&name) {
            faults.push(Fault::invalid(
                field,
                text,
                format_args!("missing value for {name:?}"),
            ));
        }
    }
}

/// The names that a text refers to; two dollars stand for one.
fn references(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('$') {
        rest = after.strip_prefix('$').unwrap_or(after);
        let is_escaped = rest.len() < after.len();
        if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
            && !is_escaped
        {
            names.push(name);
            rest = after;
        }
    }
    names
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
        ] {
            assert_eq!(references(text), names, "{text}");
        }
    }
}
