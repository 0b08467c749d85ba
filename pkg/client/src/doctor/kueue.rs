use di_api::names;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

use super::finding::Finding;
use crate::{Cluster, Result, install::versions};

const CHECK: &str = "kueue";
const REMEDY: &str = "so that jobs can be queued, run kubectl di install --kueue";
/// The versions of Kueue's API that the orchestrator can use, preferred version first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// A permission that the orchestrator needs: verb, resource and subresource.
type Permission = (&'static str, &'static str, &'static str);

/// Some permissions of the ClusterRole. Who has these has the others too.
const PERMISSIONS: [Permission; 3] = [
    ("create", "workloads", ""),
    ("patch", "workloads", "status"),
    ("get", "resourceflavors", ""),
];

/// Checks the permissions of the orchestrator to use Kueue. No findings if Kueue is not served.
pub(super) async fn check_kueue(cluster: &Cluster) -> Result<Vec<Finding>> {
    let served = versions::served_versions(cluster, names::kueue::GROUP).await?;
    if served.is_empty() {
        return Ok(Vec::new());
    }
    let version = VERSIONS
        .into_iter()
        .find(|version| served.iter().any(|one| one == version));
    let Some(version) = version else {
        let message = format!(
            "Kueue serves {}, but this orchestrator needs {}",
            served.join(", "),
            VERSIONS.join(" or ")
        );
        let remedy = "install a version of Kueue that serves one of them, or upgrade the orchestrator: kubectl di upgrade";
        return Ok(vec![Finding::warning(CHECK, message).with_remedy(remedy)]);
    };
    let reviews = PERMISSIONS
        .iter()
        .map(|permission| is_allowed(cluster, permission));
    let allowed = futures::future::try_join_all(reviews).await?;
    let refused: Vec<&Permission> = PERMISSIONS
        .iter()
        .zip(allowed)
        .filter_map(|(permission, allowed)| (!allowed).then_some(permission))
        .collect();
    Ok(vec![permission_finding(version, &refused)])
}

/// Whether the orchestrator has a permission in all namespaces.
async fn is_allowed(cluster: &Cluster, (verb, resource, subresource): &Permission) -> Result<bool> {
    let namespace = names::SYSTEM_NAMESPACE;
    // The API server derives these groups from the token, a review does not.
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:di-orchestrator")),
            groups: Some(groups.to_vec()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some((*verb).to_owned()),
                group: Some(names::kueue::GROUP.to_owned()),
                resource: Some((*resource).to_owned()),
                subresource: (!subresource.is_empty()).then(|| (*subresource).to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| cluster.convert_error(error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn permission_finding(version: &str, refused: &[&Permission]) -> Finding {
    if refused.is_empty() {
        let message = format!("Kueue {version} is served and the orchestrator may use it");
        return Finding::ok(CHECK, message);
    }
    let refused: Vec<_> = refused
        .iter()
        .map(|(verb, resource, subresource)| match *subresource {
            "" => format!("{verb} {resource}"),
            subresource => format!("{verb} {resource}/{subresource}"),
        })
        .collect();
    let message = format!(
        "Kueue {version} is served, but the orchestrator may not {}",
        refused.join(", ")
    );
    Finding::warning(CHECK, message).with_remedy(REMEDY)
}

#[cfg(test)]
mod tests {
    use di_fixtures::{ApiServerMock, Reply};
    use serde_json::json;

    use super::*;
    use crate::FindingState;

    /// A cluster that serves these versions of Kueue and grants these verbs.
    fn mock_cluster(versions: &'static [&'static str], verbs: &'static [&'static str]) -> Cluster {
        let client = ApiServerMock::client(move |request| {
            if request.path == "/apis" {
                let versions = versions.iter().map(|version| {
                    json!({"groupVersion": format!("{}/{version}", names::kueue::GROUP), "version": version})
                });
                let versions: Vec<_> = versions.collect();
                let groups = match versions.first() {
                    Some(first) => {
                        json!([{"name": names::kueue::GROUP, "versions": versions, "preferredVersion": first}])
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
                    let workloads = json!({
                        "name": "workloads", "singularName": "workload", "namespaced": true,
                        "kind": "Workload", "verbs": ["get"],
                    });
                    return Reply::Object(
                        200,
                        json!({
                            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
                            "resources": [workloads],
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

    #[tokio::test]
    async fn missing_permissions_are_a_warning_with_the_command() {
        let cluster = mock_cluster(&["v1beta1", "v1beta2"], &["create", "get"]);
        let found = check_kueue(&cluster).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].state, FindingState::Warning);
        assert_eq!(
            found[0].message,
            "Kueue v1beta2 is served, but the orchestrator may not patch workloads/status"
        );
        let remedy = found[0].remedy.as_deref().unwrap();
        assert!(remedy.ends_with("kubectl di install --kueue"), "{remedy}");
    }

    #[tokio::test]
    async fn kueue_with_permissions_is_ok() {
        let cluster = mock_cluster(&["v1beta1"], &["create", "get", "patch"]);
        let found = check_kueue(&cluster).await.unwrap();
        let ok = Finding::ok(
            CHECK,
            "Kueue v1beta1 is served and the orchestrator may use it",
        );
        assert_eq!(found, [ok]);
    }

    #[tokio::test]
    async fn absent_or_unknown_kueue_needs_no_permissions() {
        let found = check_kueue(&mock_cluster(&[], &[])).await.unwrap();
        assert!(found.is_empty(), "{found:?}");
        let found = check_kueue(&mock_cluster(&["v2"], &[])).await.unwrap();
        assert_eq!(
            found[0].message,
            "Kueue serves v2, but this orchestrator needs v1beta2 or v1beta1"
        );
    }
}
