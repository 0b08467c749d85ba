use di_api::names;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

use super::finding::Finding;
use crate::{Cluster, Result};

const CHECK: &str = "permissions";

/// A permission and the commands that need it.
struct Permission {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    used_by: &'static str,
}

const fn permission(
    verb: &'static str,
    (group, resource, subresource): (&'static str, &'static str, &'static str),
    used_by: &'static str,
) -> Permission {
    Permission {
        verb,
        group,
        resource,
        subresource,
        used_by,
    }
}

const JOBS: (&str, &str, &str) = (names::GROUP, "dijobs", "");
const PODS: (&str, &str, &str) = ("", "pods", "");
const EVENTS: (&str, &str, &str) = ("", "events", "");
const EXEC: (&str, &str, &str) = ("", "pods", "exec");
const PORTS: (&str, &str, &str) = ("", "pods", "portforward");
const PERMISSIONS: [Permission; 20] = [
    permission("get", JOBS, "get"),
    permission("list", JOBS, "get"),
    permission("watch", JOBS, "get --watch"),
    permission("create", JOBS, "create"),
    permission("patch", JOBS, "replicas, suspend, resume"),
    permission("delete", JOBS, "delete"),
    // The webhook requires it from the author of a job. See docs/decisions/0010.
    permission("create", PODS, "create"),
    permission("get", PODS, "restart"),
    permission("list", PODS, "replicas list"),
    permission("watch", PODS, "replicas list --watch, logs --follow, top"),
    permission("delete", PODS, "replicas restart"),
    permission("get", ("", "pods", "log"), "logs"),
    // A WebSocket starts with a GET. Newer API servers also require create.
    permission("get", EXEC, "exec"),
    permission("create", EXEC, "exec"),
    permission("get", PORTS, "port-forward"),
    permission("create", PORTS, "port-forward"),
    permission("get", ("", "pods", "proxy"), "status"),
    permission("create", ("", "pods", "proxy"), "pause, start"),
    permission("list", EVENTS, "events"),
    permission("watch", EVENTS, "events --watch"),
];

/// Checks the permissions of the user in the current namespace.
pub(super) async fn check_permissions(cluster: &Cluster) -> Result<Vec<Finding>> {
    let reviews = PERMISSIONS
        .iter()
        .map(|permission| is_allowed(cluster, permission));
    let allowed = futures::future::try_join_all(reviews).await?;
    let refused: Vec<&Permission> = PERMISSIONS
        .iter()
        .zip(allowed)
        .filter_map(|(permission, allowed)| (!allowed).then_some(permission))
        .collect();
    Ok(vec![permission_finding(
        &refused,
        &cluster.namespace().name,
    )])
}

async fn is_allowed(cluster: &Cluster, permission: &Permission) -> Result<bool> {
    let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(cluster.namespace().name.clone()),
                verb: Some(permission.verb.to_owned()),
                group: optional(permission.group),
                resource: Some(permission.resource.to_owned()),
                subresource: optional(permission.subresource),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| cluster.convert_error(error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn permission_finding(refused: &[&Permission], namespace: &str) -> Finding {
    if refused.is_empty() {
        let message = format!("you have all permissions of this plugin in namespace {namespace}");
        return Finding::ok(CHECK, message);
    }
    let mut verbs: Vec<&str> = Vec::new();
    for permission in refused {
        if !verbs.contains(&permission.used_by) {
            verbs.push(permission.used_by);
        }
    }
    let missing: Vec<_> = refused
        .iter()
        .map(|permission| {
            let sub = match permission.subresource {
                "" => String::new(),
                sub => format!("/{sub}"),
            };
            format!("{} {}{sub}", permission.verb, permission.resource)
        })
        .collect();
    let message = format!(
        "missing permissions for these commands in namespace {namespace}: {}",
        verbs.join(", ")
    );
    Finding::warning(CHECK, message).with_remedy(format!(
        "if you need them, ask an administrator for permission to {}",
        missing.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_permissions_are_listed_by_command() {
        let refused: Vec<_> = PERMISSIONS
            .iter()
            .filter(|permission| matches!(permission.subresource, "log" | "exec"))
            .collect();
        let found = permission_finding(&refused, "n");
        assert_eq!(
            found.message,
            "missing permissions for these commands in namespace n: logs, exec"
        );
        let remedy = found.remedy.unwrap();
        assert!(
            remedy.ends_with("to get pods/log, get pods/exec, create pods/exec"),
            "{remedy}"
        );
    }
}
