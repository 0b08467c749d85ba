use di_api::names;

use super::{
    access::{Permission, Subject, find_refused},
    finding::Finding,
};
use crate::{Cluster, Result, install::versions};

const CHECK: &str = "kueue";
const REMEDY: &str = "so that jobs can be queued, run kubectl di install --kueue";
/// The versions of Kueue's API that the orchestrator can use, preferred version first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Some permissions of the ClusterRole. Who has these has the others too.
const PERMISSIONS: [Permission; 3] = [
    Permission::new("create", (names::kueue::GROUP, "workloads", "")),
    Permission::new("patch", (names::kueue::GROUP, "workloads", "status")),
    Permission::new("get", (names::kueue::GROUP, "resourceflavors", "")),
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
    let refused = find_refused(cluster, Subject::Orchestrator, &PERMISSIONS).await?;
    Ok(vec![permission_finding(version, &refused)])
}

fn permission_finding(version: &str, refused: &[Permission]) -> Finding {
    if refused.is_empty() {
        let message = format!("Kueue {version} is served and the orchestrator may use it");
        return Finding::ok(CHECK, message);
    }
    let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
    let message = format!(
        "Kueue {version} is served, but the orchestrator may not {}",
        refused.join(", ")
    );
    Finding::warning(CHECK, message).with_remedy(REMEDY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FindingState, doctor::access::mock_cluster};

    /// A cluster that serves these versions of Kueue and grants these verbs.
    fn mock_kueue(versions: &'static [&'static str], verbs: &'static [&'static str]) -> Cluster {
        mock_cluster(names::kueue::GROUP, "Workload", versions, verbs)
    }

    #[tokio::test]
    async fn missing_permissions_are_a_warning_with_the_command() {
        let cluster = mock_kueue(&["v1beta1", "v1beta2"], &["create", "get"]);
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
        let cluster = mock_kueue(&["v1beta1"], &["create", "get", "patch"]);
        let found = check_kueue(&cluster).await.unwrap();
        let ok = Finding::ok(
            CHECK,
            "Kueue v1beta1 is served and the orchestrator may use it",
        );
        assert_eq!(found, [ok]);
    }

    #[tokio::test]
    async fn absent_or_unknown_kueue_needs_no_permissions() {
        let found = check_kueue(&mock_kueue(&[], &[])).await.unwrap();
        assert!(found.is_empty(), "{found:?}");
        let found = check_kueue(&mock_kueue(&["v2"], &[])).await.unwrap();
        assert_eq!(
            found[0].message,
            "Kueue serves v2, but this orchestrator needs v1beta2 or v1beta1"
        );
    }
}
