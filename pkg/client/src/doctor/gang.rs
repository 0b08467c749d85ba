use di_plan::{GangScheduler, GroupKind};

use super::{
    access::{Permission, Subject, find_refused, format_permissions, granted_permissions},
    finding::Finding,
};
use crate::{
    Cluster, HelmRelease, Result,
    install::{helm::gang_command, install_objects::gang_role, versions},
};

const CHECK: &str = "gang";

/// Checks whether the cluster serves the groups of the gang scheduler, and whether the orchestrator
/// may use them.
pub(super) async fn check_gang(
    cluster: &Cluster,
    scheduler: &str,
    release: Option<&HelmRelease>,
) -> Result<Vec<Finding>> {
    let Ok(scheduler) = scheduler.parse::<GangScheduler>() else {
        let message = format!("the orchestrator has the unknown gang scheduler {scheduler}");
        let command = gang_command(release, "SCHEDULER");
        let remedy = format!("set another one: {command}");
        return Ok(vec![Finding::error(CHECK, message).with_remedy(remedy)]);
    };
    let Some(kind) = scheduler.group_kind() else {
        let message = format!("the scheduler is {scheduler}, which needs no permissions");
        return Ok(vec![Finding::ok(CHECK, message)]);
    };
    let GroupKind { group, version } = kind;
    if !versions::is_kind_served(cluster, group, version, GroupKind::KIND).await? {
        let message = format!(
            "the scheduler is {scheduler}, but the cluster does not serve {} of {}, so jobs run without a gang",
            GroupKind::KIND,
            kind.api_version()
        );
        let command = gang_command(release, "none");
        let remedy = format!("install the scheduler, or run {command}");
        return Ok(vec![Finding::warning(CHECK, message).with_remedy(remedy)]);
    }
    let role = gang_role()?;
    let mut needed = granted_permissions(&role);
    // The role is for all schedulers.
    needed.retain(|permission| permission.is_in_group(group));
    let refused = find_refused(cluster, Subject::Orchestrator, &needed).await?;
    Ok(vec![permission_finding(&scheduler, &refused, release)])
}

fn permission_finding(
    scheduler: &GangScheduler,
    refused: &[Permission<'_>],
    release: Option<&HelmRelease>,
) -> Finding {
    if refused.is_empty() {
        let message = format!(
            "the scheduler is {scheduler}, its API is served and the orchestrator may use it"
        );
        return Finding::ok(CHECK, message);
    }
    let message = format!(
        "the scheduler is {scheduler}, but the orchestrator may not {}",
        format_permissions(refused)
    );
    let command = gang_command(release, &scheduler.to_string());
    Finding::warning(CHECK, message).with_remedy(format!("so that gangs can start, run {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FindingState, doctor::access::mock_cluster};

    const GROUP: &str = "scheduling.x-k8s.io";
    const KIND: &str = GroupKind::KIND;
    const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

    async fn check(cluster: &Cluster, scheduler: &str) -> Finding {
        let mut found = check_gang(cluster, scheduler, None).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[tokio::test]
    async fn missing_permissions_are_a_warning_with_the_command() {
        let cluster = mock_cluster(GROUP, KIND, &["v1alpha1"], &["create", "delete"]);
        let found = check(&cluster, "coscheduling:mine").await;
        assert_eq!(found.state, FindingState::Warning);
        assert_eq!(
            found.message,
            "the scheduler is coscheduling:mine, but the orchestrator may not get/list/watch/patch podgroups"
        );
        let remedy = found.remedy.unwrap();
        assert!(
            remedy.ends_with("kubectl di install --gang-scheduler=coscheduling:mine"),
            "{remedy}"
        );
    }

    #[tokio::test]
    async fn scheduler_with_permissions_is_ok() {
        let cluster = mock_cluster(GROUP, KIND, &["v1alpha1"], &VERBS);
        let found = check(&cluster, "coscheduling").await;
        assert_eq!(found.state, FindingState::Ok, "{found:?}");
        let found = check(&cluster, "yunikorn").await;
        assert_eq!(found.state, FindingState::Ok, "{found:?}");
    }

    #[tokio::test]
    async fn absent_api_and_unknown_scheduler_are_reported() {
        // The other kinds of this API are no groups.
        for (group, kind) in [(GROUP, KIND), ("scheduling.k8s.io", "PriorityClass")] {
            let cluster = mock_cluster(group, kind, &["v1beta1"], &VERBS);
            for scheduler in ["coscheduling", "kubernetes"] {
                let found = check(&cluster, scheduler).await;
                assert_eq!(found.state, FindingState::Warning);
                assert!(found.message.contains("does not serve"), "{found:?}");
            }
        }
        let found = check(&mock_cluster(GROUP, KIND, &[], &[]), "slurm").await;
        assert_eq!(found.state, FindingState::Error);
    }
}
