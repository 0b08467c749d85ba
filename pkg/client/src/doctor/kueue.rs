use di_api::names;

use super::{
    access::{Permission, Subject, find_refused, format_permissions, granted_permissions},
    finding::Finding,
};
use crate::{
    Cluster, Error, HelmRelease, Job, JobQuery, Result,
    install::{
        helm::{kueue_command, upgrade_command},
        install_objects::kueue_objects,
        versions,
    },
    list_jobs,
};

const CHECK: &str = "kueue";
/// The versions of Kueue's API that the orchestrator can use, preferred version first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Checks the permissions of the orchestrator to use Kueue; if Kueue is not served, that no job
/// needs it.
pub(super) async fn check_kueue(
    cluster: &Cluster,
    release: Option<&HelmRelease>,
) -> Result<Vec<Finding>> {
    let served = versions::served_versions(cluster, names::kueue::GROUP).await?;
    if served.is_empty() {
        let jobs = list_jobs_with_queue(cluster).await?;
        return Ok(not_served_finding(&jobs).into_iter().collect());
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
        let remedy = format!(
            "install a version of Kueue that serves one of them, or upgrade the orchestrator: {}",
            upgrade_command(release)
        );
        return Ok(vec![Finding::warning(CHECK, message).with_remedy(remedy)]);
    };
    let objects = kueue_objects()?;
    let needed = granted_permissions(&objects);
    let refused = find_refused(cluster, Subject::Orchestrator, &needed).await?;
    Ok(vec![permission_finding(version, &refused, release)])
}

/// Lists the jobs with the label of a queue that have not ended, in all namespaces that the user may
/// read.
async fn list_jobs_with_queue(cluster: &Cluster) -> Result<Vec<Job>> {
    let mut query = JobQuery {
        all_namespaces: true,
        selector: Some(names::kueue::QUEUE_LABEL.to_owned()),
        ..JobQuery::default()
    };
    let mut listed = list_jobs(cluster, &query).await;
    if listed.as_ref().is_err_and(Error::is_forbidden) {
        query.all_namespaces = false;
        listed = list_jobs(cluster, &query).await;
    }
    let mut jobs = match listed {
        Ok(listed) => listed.jobs,
        // Another check reports the missing definition.
        Err(Error::NoSuchResource { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    jobs.retain(|job| job.queue_name().is_some() && !job.has_ended());
    Ok(jobs)
}

/// Warns about jobs that need Kueue in a cluster without it.
fn not_served_finding(jobs: &[Job]) -> Option<Finding> {
    let (first, others) = jobs.split_first()?;
    let more = match others.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let message = format!(
        "Kueue is not served, and jobs with the label of a queue do not start without it: {}/{}{more}",
        first.namespace(),
        first.name()
    );
    let remedy = format!(
        "install Kueue, or remove the label of jobs that wait: kubectl label dijob NAME -n NAMESPACE {}-",
        names::kueue::QUEUE_LABEL
    );
    Some(Finding::warning(CHECK, message).with_remedy(remedy))
}

fn permission_finding(
    version: &str,
    refused: &[Permission<'_>],
    release: Option<&HelmRelease>,
) -> Finding {
    if refused.is_empty() {
        let message = format!("Kueue {version} is served and the orchestrator may use it");
        return Finding::ok(CHECK, message);
    }
    let message = format!(
        "Kueue {version} is served, but the orchestrator may not {}",
        format_permissions(refused)
    );
    let command = kueue_command(release);
    Finding::warning(CHECK, message)
        .with_remedy(format!("so that jobs can be queued, run {command}"))
}

#[cfg(test)]
mod tests {
    use di_fixtures::{ApiServerMock, Reply};
    use serde_json::{Value, json};

    use super::*;
    use crate::{FindingState, doctor::access::mock_cluster};

    /// A cluster that serves these versions of Kueue and grants these verbs.
    fn mock_kueue(versions: &'static [&'static str], verbs: &'static [&'static str]) -> Cluster {
        mock_cluster(names::kueue::GROUP, "Workload", versions, verbs)
    }

    /// A job with this value of the label of queues.
    fn job(name: &str, queue: &str, phase: &str) -> Value {
        let labels = json!({(names::kueue::QUEUE_LABEL): queue});
        let job = di_fixtures::Job::test().named(name).phase(phase);
        job.metadata(json!({ "labels": labels })).json()
    }

    /// A cluster without Kueue that replies by a function to lists of jobs.
    fn mock_jobs(reply: impl Fn(&str) -> Reply + Send + 'static) -> Cluster {
        let client = ApiServerMock::client(move |request| {
            if request.path == "/apis" {
                let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []});
                return Reply::Object(200, groups);
            }
            assert!(request.path.ends_with("/dijobs"), "{}", request.path);
            reply(&request.path)
        });
        Cluster::for_test_client(client)
    }

    fn list_of(jobs: &[Value]) -> Reply {
        let list = json!({
            "kind": "DIJobList", "apiVersion": "diengine.opendilab.org/v1alpha2",
            "metadata": {"resourceVersion": "1"}, "items": jobs,
        });
        Reply::Object(200, list)
    }

    #[tokio::test]
    async fn jobs_in_queues_without_kueue_are_a_warning() {
        let jobs = [
            job("ended", "team-a", "Succeeded"),
            job("none", "", "Running"),
            job("train", "team-a", "Queued"),
            job("eval", "team-a", "Running"),
        ];
        let cluster = mock_jobs(move |_| list_of(&jobs));
        let found = check_kueue(&cluster, None).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].state, FindingState::Warning);
        assert_eq!(
            found[0].message,
            "Kueue is not served, and jobs with the label of a queue do not start without it: rl/train and 1 more"
        );
        let remedy = found[0].remedy.as_deref().unwrap();
        assert!(remedy.ends_with(" kueue.x-k8s.io/queue-name-"), "{remedy}");
    }

    #[tokio::test]
    async fn jobs_of_the_namespace_are_checked_without_more_permissions() {
        let cluster = mock_jobs(|path| {
            if path.contains("/namespaces/") {
                list_of(&[job("train", "team-a", "Queued")])
            } else {
                Reply::error(403, "forbidden")
            }
        });
        let found = check_kueue(&cluster, None).await.unwrap();
        assert!(found[0].message.ends_with(": rl/train"), "{found:?}");
    }

    #[tokio::test]
    async fn cluster_without_kueue_and_without_jobs_needs_nothing() {
        let cluster = mock_jobs(|_| list_of(&[]));
        let found = check_kueue(&cluster, None).await.unwrap();
        assert!(found.is_empty(), "{found:?}");
        let cluster = mock_jobs(|_| Reply::error(404, "not found"));
        let found = check_kueue(&cluster, None).await.unwrap();
        assert!(found.is_empty(), "no definition of jobs: {found:?}");
    }

    #[tokio::test]
    async fn missing_permissions_are_a_warning_with_the_command() {
        let cluster = mock_kueue(&["v1beta1", "v1beta2"], &["create", "get"]);
        let found = check_kueue(&cluster, None).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].state, FindingState::Warning);
        assert_eq!(
            found[0].message,
            "Kueue v1beta2 is served, but the orchestrator may not list/watch/patch/delete workloads, patch workloads/status, list priorityclasses"
        );
        let remedy = found[0].remedy.as_deref().unwrap();
        assert!(remedy.ends_with("kubectl di install --kueue"), "{remedy}");
    }

    #[tokio::test]
    async fn kueue_with_permissions_is_ok() {
        let verbs = &["get", "list", "watch", "create", "patch", "delete"];
        let cluster = mock_kueue(&["v1beta1"], verbs);
        let found = check_kueue(&cluster, None).await.unwrap();
        let ok = Finding::ok(
            CHECK,
            "Kueue v1beta1 is served and the orchestrator may use it",
        );
        assert_eq!(found, [ok]);
    }

    #[tokio::test]
    async fn kueue_of_an_unknown_version_is_reported() {
        let cluster = mock_kueue(&["v2"], &[]);
        let found = check_kueue(&cluster, None).await.unwrap();
        assert_eq!(
            found[0].message,
            "Kueue serves v2, but this orchestrator needs v1beta2 or v1beta1"
        );
    }
}
