//! The permissions for jobs in Kubernetes' ClusterRoles `view`, `edit` and `admin`.

use di_api::names;
use di_apiserver_tests::{Space, eventually};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, api::PostParams};
use serde_json::json;

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];
const UPDATE: &[&str] = &["update", "patch"];

const ALL: &[&str] = &["view", "edit", "admin"];
const EDITORS: &[&str] = &["edit", "admin"];

/// Resources, verbs, and the ClusterRoles that permit them.
const PERMISSIONS: [(&str, &[&str], &[&str]); 9] = [
    ("dijobs", READ, ALL),
    ("dijobs", WRITE, EDITORS),
    ("dijobs/status", READ, ALL),
    ("dijobs/status", UPDATE, &[]),
    ("dijobs/scale", READ, ALL),
    ("dijobs/scale", UPDATE, EDITORS),
    ("dijobs/finalizers", UPDATE, &[]),
    ("aggregatorconfigs", READ, ALL),
    ("aggregatorconfigs", WRITE, EDITORS),
];

async fn is_allowed(
    space: &Space,
    user: &str,
    namespace: &str,
    verb: &str,
    resource: &str,
) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": user,
        "resourceAttributes": {
            "namespace": namespace, "verb": verb,
            "group": names::GROUP, "resource": resource, "subresource": subresource,
        },
    }}))
    .unwrap();
    let api: Api<SubjectAccessReview> = Api::all(space.client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    answer.unwrap().status.unwrap().allowed
}

/// Checks the permissions of a user who is bound to this ClusterRole and has its name.
async fn check_permissions(space: &Space, role: &str) -> Result<(), String> {
    for (resource, verbs, roles) in PERMISSIONS {
        for verb in verbs {
            let allowed = is_allowed(space, role, &space.namespace, verb, resource).await;
            if allowed != roles.contains(&role) {
                return Err(format!("{verb} {resource}: {allowed}"));
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn users_of_namespace_may_use_jobs_by_their_role() {
    let space = Space::new().await;
    for role in ALL {
        space.bind_cluster_role(role, role).await;
        // The API server applies new roles with a delay.
        eventually(&format!("{role} has its permissions"), async || {
            check_permissions(&space, role).await
        })
        .await;
        let elsewhere = is_allowed(&space, role, "default", "get", "dijobs").await;
        assert!(!elsewhere, "{role}");
    }
}
