use std::fmt::{self, Debug, Display, Formatter};

use di_api::names;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::{Api, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Cluster, Result};

/// An API group, a resource in it, and a subresource, which may be empty.
pub type Target<'a> = (&'a str, &'a str, &'a str);

/// A permission. Displayed as in `get pods/log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission<'a> {
    verb: &'a str,
    target: Target<'a>,
}

impl<'a> Permission<'a> {
    /// The permission to use this verb on this resource.
    pub const fn new(verb: &'a str, target: Target<'a>) -> Self {
        Self { verb, target }
    }

    /// Whether the resource is in this API group.
    pub(super) fn is_in_group(self, group: &str) -> bool {
        self.target.0 == group
    }

    fn attributes(self, namespace: Option<&str>) -> ResourceAttributes {
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (group, resource, subresource) = self.target;
        ResourceAttributes {
            namespace: namespace.map(str::to_owned),
            verb: Some(self.verb.to_owned()),
            group: optional(group),
            resource: Some(resource.to_owned()),
            subresource: optional(subresource),
            ..ResourceAttributes::default()
        }
    }
}

impl Display for Permission<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (_, resource, subresource) = self.target;
        write!(f, "{} {resource}", self.verb)?;
        if subresource.is_empty() {
            return Ok(());
        }
        write!(f, "/{subresource}")
    }
}

/// The permissions that the ClusterRoles among these objects grant.
pub(super) fn granted_permissions(objects: &[Value]) -> Vec<Permission<'_>> {
    let rules = objects.iter().flat_map(|object| elements(&object["rules"]));
    let mut permissions = Vec::new();
    for rule in rules {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let target = (group, resource, subresource);
                let verbs = texts(&rule["verbs"]);
                permissions.extend(verbs.map(|verb| Permission::new(verb, target)));
            }
        }
    }
    permissions
}

fn elements(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    elements(list).filter_map(Value::as_str)
}

/// Formats permissions, such as `get/list workloads, patch workloads/status`. Those for the same
/// resource must follow each other.
pub(super) fn format_permissions(permissions: &[Permission<'_>]) -> String {
    let by_target = permissions.chunk_by(|one, next| one.target == next.target);
    let formatted = by_target.map(|alike| {
        let verbs: Vec<_> = alike.iter().map(|permission| permission.verb).collect();
        Permission::new(&verbs.join("/"), alike[0].target).to_string()
    });
    formatted.collect::<Vec<_>>().join(", ")
}

/// The permissions that the user does not have in the current namespace, in the same order.
pub async fn find_refused_permissions<'a>(
    cluster: &Cluster,
    permissions: &[Permission<'a>],
) -> Result<Vec<Permission<'a>>> {
    find_refused(cluster, Subject::User, permissions).await
}

/// Whose permissions are checked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    /// The user, in the current namespace.
    User,
    /// The orchestrator, in all namespaces.
    Orchestrator,
}

/// The permissions that the subject does not have, in the same order.
pub(super) async fn find_refused<'a>(
    cluster: &Cluster,
    subject: Subject,
    permissions: &[Permission<'a>],
) -> Result<Vec<Permission<'a>>> {
    let reviews = permissions
        .iter()
        .map(|permission| is_allowed(cluster, subject, *permission));
    let allowed = futures::future::try_join_all(reviews).await?;
    let reviewed = permissions.iter().zip(allowed);
    Ok(reviewed
        .filter_map(|(permission, allowed)| (!allowed).then_some(*permission))
        .collect())
}

async fn is_allowed(
    cluster: &Cluster,
    subject: Subject,
    permission: Permission<'_>,
) -> Result<bool> {
    let status = match subject {
        Subject::User => {
            let namespace = &cluster.namespace().name;
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(permission.attributes(Some(namespace))),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            create_review(cluster, &review).await?.status
        }
        Subject::Orchestrator => {
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    resource_attributes: Some(permission.attributes(None)),
                    ..orchestrator_account()
                },
                ..SubjectAccessReview::default()
            };
            create_review(cluster, &review).await?.status
        }
    };
    Ok(status.is_some_and(|status| status.allowed))
}

/// A review of the service account of the orchestrator, without a permission.
fn orchestrator_account() -> SubjectAccessReviewSpec {
    let namespace = names::SYSTEM_NAMESPACE;
    // The API server derives these groups from the token, a review does not.
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:di-orchestrator")),
        groups: Some(groups.to_vec()),
        ..SubjectAccessReviewSpec::default()
    }
}

/// Sends a review, and returns it with the answer of the API server.
async fn create_review<K>(cluster: &Cluster, review: &K) -> Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let reviews: Api<K> = Api::all(cluster.client.clone());
    let answer = reviews.create(&PostParams::default(), review).await;
    answer.map_err(|error| cluster.convert_error(error))
}

/// A cluster that serves a kind in these versions of a group, and grants the orchestrator these
/// verbs.
#[cfg(test)]
pub(super) fn mock_cluster(
    group: &'static str,
    kind: &'static str,
    versions: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Cluster {
    use di_fixtures::{ApiServerMock, Reply};
    use serde_json::json;

    let client = ApiServerMock::client(move |request| {
        if request.path == "/apis" {
            let served = versions.iter().map(
                |version| json!({"groupVersion": format!("{group}/{version}"), "version": version}),
            );
            let served: Vec<_> = served.collect();
            let groups = match served.first() {
                Some(first) => {
                    json!([{"name": group, "versions": served, "preferredVersion": first}])
                }
                None => json!([]),
            };
            return Reply::Object(
                200,
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
            );
        }
        if let Some(version) = request.path.strip_prefix("/apis/") {
            if versions.iter().any(|one| version.ends_with(one)) {
                let singular = kind.to_lowercase();
                let resource = json!({
                    "name": format!("{singular}s"), "singularName": singular, "namespaced": true,
                    "kind": kind, "verbs": ["get"],
                });
                return Reply::Object(
                    200,
                    json!({
                        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
                        "resources": [resource],
                    }),
                );
            }
            let spec = &request.body["spec"];
            assert_eq!(
                spec["user"],
                "system:serviceaccount:di-system:di-orchestrator"
            );
            let verb = spec["resourceAttributes"]["verb"].as_str();
            let allowed = verb.is_some_and(|verb| verbs.contains(&verb));
            let mut review = request.body.clone();
            review["status"] = json!({"allowed": allowed});
            return Reply::Object(201, review);
        }
        Reply::error(404, "not found")
    });
    Cluster::for_test_client(client)
}
