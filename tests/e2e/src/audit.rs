use std::{collections::BTreeSet, path::PathBuf};

use serde::Deserialize;

/// One request in the API server's audit log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Verb, as in RBAC.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Resource with its subresource, as in RBAC.
    pub resource: String,
    /// Whether the request was forbidden.
    pub forbidden: bool,
}

/// The API server's audit log.
pub struct Audit(PathBuf);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default, rename = "apiGroup")]
    group: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

impl Audit {
    /// Opens the log that `kind/env` names.
    ///
    /// # Panics
    /// If `DI_AUDIT_LOG` is not set.
    pub fn of_cluster() -> Self {
        Self(
            std::env::var_os("DI_AUDIT_LOG")
                .expect("DI_AUDIT_LOG: eval \"$(kind/env)\"")
                .into(),
        )
    }

    /// Returns the distinct requests of a user.
    ///
    /// # Panics
    /// If the log cannot be read.
    pub fn calls_of(&self, user: &str) -> BTreeSet<Call> {
        let log = std::fs::read_to_string(&self.0).expect("the audit log");
        log.lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok())
            .filter(|line| line.user.username == user)
            .filter_map(|line| {
                let object = line.object_ref?;
                let resource = match object.subresource.as_str() {
                    "" => object.resource,
                    sub => format!("{}/{sub}", object.resource),
                };
                let decision = line.annotations.get("authorization.k8s.io/decision");
                Some(Call {
                    verb: line.verb,
                    group: object.group,
                    resource,
                    forbidden: decision.is_some_and(|decision| decision == "forbid"),
                })
            })
            .collect()
    }
}
