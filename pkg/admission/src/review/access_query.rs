use di_api::names;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};

use super::request::{Kind, User};

/// The namespaces in which an object can cause pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// One namespace.
    Namespace(String),
    /// All namespaces.
    Cluster,
}

impl Scope {
    /// The scope of an object of this kind in this namespace.
    pub(super) fn for_object(kind: Kind, namespace: &str) -> Self {
        if kind == Kind::AggregatorConfig && namespace == names::SYSTEM_NAMESPACE {
            Self::Cluster
        } else {
            Self::Namespace(namespace.to_owned())
        }
    }
}

/// The query whether a user may create pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessQuery {
    pub(super) user: User,
    pub(super) scope: Scope,
}

impl AccessQuery {
    /// The query as a `SubjectAccessReview` for the API server.
    pub fn to_access_review(&self) -> SubjectAccessReview {
        let user = self.user.clone();
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("create".to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("pods".to_owned()),
                    namespace: match &self.scope {
                        Scope::Namespace(name) => Some(name.clone()),
                        Scope::Cluster => None,
                    },
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }

    pub(super) fn user_name(&self) -> &str {
        self.user.username.as_deref().unwrap_or_default()
    }

    /// The scope as text, in the wording of Kubernetes.
    pub(super) fn scope_text(&self) -> String {
        match &self.scope {
            Scope::Namespace(namespace) => format!("in the namespace {namespace:?}"),
            Scope::Cluster => "at the cluster scope".to_owned(),
        }
    }

    /// Size of the strings of the query in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let User {
            username,
            uid,
            groups,
            extra,
        } = &self.user;
        let extra = extra.iter().flatten();
        let extra = extra.flat_map(|(key, values)| std::iter::once(key).chain(values));
        let strings = username.iter().chain(uid);
        let strings = strings.chain(groups.iter().flatten()).chain(extra);
        strings.map(String::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_is_cluster_only_for_system_config() {
        let named = |name: &str| Scope::Namespace(name.to_owned());
        for (kind, namespace, expected) in [
            (Kind::DIJob, "rl", named("rl")),
            (Kind::DIJob, "di-system", named("di-system")),
            (Kind::AggregatorConfig, "rl", named("rl")),
            (Kind::AggregatorConfig, "di-system", Scope::Cluster),
        ] {
            assert_eq!(Scope::for_object(kind, namespace), expected);
        }
    }
}
