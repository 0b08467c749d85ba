//! References to variables, `$(NAME)`, as kubelets expand them.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Container;

use crate::{
    role::Role,
    validation::{
        fault::{Fault, Faults, truncate_text},
        path::Path,
    },
};

/// Maximum length in bytes of a name in a message.
const MAX_NAME_LEN: usize = 128;

/// The variables of a container in its template.
pub(crate) struct Variables<'a> {
    role: Role,
    own: HashSet<&'a str>,
    /// False with `envFrom`, because the keys are unknown.
    are_known: bool,
}

impl<'a> Variables<'a> {
    pub(crate) fn from_container(container: &'a Container, role: Role) -> Self {
        let own = container.env.iter().flatten();
        Self {
            role,
            own: own.map(|variable| variable.name.as_str()).collect(),
            are_known: container.env_from.as_ref().is_none_or(Vec::is_empty),
        }
    }

    /// Checks that all references in `text` are known: a kubelet does not start the container
    /// otherwise. Reports each missing name once.
    pub(crate) fn check_references(&self, text: &str, field: &Path<'_>, faults: &mut Faults) {
        if !self.are_known {
            return;
        }
        let is_service_variable = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT");
        let mut reported = HashSet::new();
        for name in referenced_names(text) {
            if !is_set_by_orchestrator(name, self.role)
                && !is_service_variable(name)
                && !self.own.contains(name)
                && reported.insert(name)
            {
                let name = truncate_text(name, MAX_NAME_LEN);
                let why = format_args!("missing value for {name:?}");
                faults.push(Fault::invalid(field, text, why));
            }
        }
    }
}

/// Whether the orchestrator sets this variable in pods of the role's template. A learner template
/// also serves ddp learners: the coordinator may request learners with several GPUs later.
pub(crate) fn is_set_by_orchestrator(name: &str, role: Role) -> bool {
    let ddp = (role == Role::Learner).then_some(Role::DdpLearner);
    let mut roles = [role].into_iter().chain(ddp);
    roles.any(|role| role.env_names().any(|known| known == name))
}

/// Returns the names that a text refers to. Two dollar signs are an escaped one.
fn referenced_names(text: &str) -> impl Iterator<Item = &str> {
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
            // Without `)` no later reference ends either.
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
    fn references_are_parsed_as_kubelets_do() {
        for (text, names) in [
            ("", vec![]),
            ("$(A)/$(B_C)", vec!["A", "B_C"]),
            ("$$(A)$(B)", vec!["B"]),
            ("$$$(A)", vec!["A"]),
            ("$A/${A}/(A)/$(A", vec![]),
            ("$$(A)$(A$(B)", vec!["A$(B"]),
            ("$($(A", vec![]),
        ] {
            assert_eq!(referenced_names(text).collect::<Vec<_>>(), names, "{text}");
        }
    }
}
