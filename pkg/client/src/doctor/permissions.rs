use di_api::names;

use super::{
    access::{Permission, Subject, Target, find_refused},
    finding::Finding,
};
use crate::{Cluster, Result};

const CHECK: &str = "permissions";

const JOBS: Target<'static> = (names::GROUP, "dijobs", "");
const PODS: Target<'static> = ("", "pods", "");
const EVENTS: Target<'static> = ("", "events", "");
const EXEC: Target<'static> = ("", "pods", "exec");
const PORTS: Target<'static> = ("", "pods", "portforward");
/// Permissions, and the commands that need them.
const PERMISSIONS: [(Permission<'static>, &str); 20] = [
    (Permission::new("get", JOBS), "get"),
    (Permission::new("list", JOBS), "get"),
    (Permission::new("watch", JOBS), "get --watch"),
    (Permission::new("create", JOBS), "create"),
    (Permission::new("patch", JOBS), "replicas, suspend, resume"),
    (Permission::new("delete", JOBS), "delete"),
    // The webhook requires it from the author of a job. See docs/decisions/0010.
    (Permission::new("create", PODS), "create"),
    (Permission::new("get", PODS), "restart"),
    (Permission::new("list", PODS), "replicas list"),
    (
        Permission::new("watch", PODS),
        "replicas list --watch, logs --follow, top",
    ),
    (Permission::new("delete", PODS), "replicas restart"),
    (Permission::new("get", ("", "pods", "log")), "logs"),
    // A WebSocket starts with a GET. Newer API servers also require create.
    (Permission::new("get", EXEC), "exec"),
    (Permission::new("create", EXEC), "exec"),
    (Permission::new("get", PORTS), "port-forward"),
    (Permission::new("create", PORTS), "port-forward"),
    (Permission::new("get", ("", "pods", "proxy")), "status"),
    (
        Permission::new("create", ("", "pods", "proxy")),
        "pause, start",
    ),
    (Permission::new("list", EVENTS), "events"),
    (Permission::new("watch", EVENTS), "events --watch"),
];

/// Checks the permissions of the user in the current namespace.
pub(super) async fn check_permissions(cluster: &Cluster) -> Result<Vec<Finding>> {
    let all = PERMISSIONS.map(|(permission, _)| permission);
    let refused = find_refused(cluster, Subject::User, &all).await?;
    Ok(vec![permission_finding(
        &refused,
        &cluster.namespace().name,
    )])
}

fn permission_finding(refused: &[Permission<'_>], namespace: &str) -> Finding {
    if refused.is_empty() {
        let message = format!("you have all permissions of this plugin in namespace {namespace}");
        return Finding::ok(CHECK, message);
    }
    let mut commands: Vec<&str> = Vec::new();
    for (permission, used_by) in PERMISSIONS {
        if refused.contains(&permission) && !commands.contains(&used_by) {
            commands.push(used_by);
        }
    }
    let missing: Vec<_> = refused.iter().map(ToString::to_string).collect();
    let message = format!(
        "missing permissions for these commands in namespace {namespace}: {}",
        commands.join(", ")
    );
    Finding::warning(CHECK, message).with_remedy(format!(
        "if you need them, ask an administrator for the ClusterRole edit in this namespace, or for permission to {}",
        missing.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_permissions_are_listed_by_command() {
        let all = PERMISSIONS.map(|(permission, _)| permission);
        let refused: Vec<_> = all
            .into_iter()
            .filter(|permission| {
                let text = permission.to_string();
                text.ends_with("/log") || text.ends_with("/exec")
            })
            .collect();
        let found = permission_finding(&refused, "n");
        assert_eq!(
            found.message,
            "missing permissions for these commands in namespace n: logs, exec"
        );
        let remedy = found.remedy.unwrap();
        assert!(
            remedy.contains("the ClusterRole edit in this namespace"),
            "{remedy}"
        );
        assert!(
            remedy.ends_with("to get pods/log, get pods/exec, create pods/exec"),
            "{remedy}"
        );
    }
}
