use di_api::{EntryState, Role, names};
use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, core::ApiResource};
use serde_json::Value;

use crate::{
    Change, Cluster, Deadline, Error, Job, Replica, Result,
    connection::watch::{Selection, watch_objects},
    replicas::list::{join_plan_with_pods, owned_pods},
};

/// Selects one replica of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChoice {
    /// By name. The job name may be left out, for example `collector-x7k2p`.
    Named(String),
    /// By role and index. Without index the first replica of the role.
    Role(Role, Option<i32>),
}

/// Finds the pod of a replica.
///
/// # Errors
/// [`Error::Refused`] if the pod does not exist.
pub async fn replica_pod(cluster: &Cluster, job: &Job, choice: &PodChoice) -> Result<Pod> {
    let mut pods = owned_pods(cluster, job).await?;
    let replicas = join_plan_with_pods(job, &pods);
    let name = select_replica(job, &replicas, choice).map_err(Error::Refused)?;
    let at = pods.iter().position(|pod| pod.name_any() == name);
    at.map(|at| pods.swap_remove(at))
        .ok_or_else(|| Error::Refused(format!("replica {name:?} has no pod yet")))
}

/// Waits until the pod of a replica runs or has ended. Returns the pod as it is at the deadline.
pub async fn wait_for_started_pod(
    cluster: &Cluster,
    job: &Job,
    choice: &PodChoice,
    deadline: Deadline,
) -> Result<Pod> {
    let mut pod = replica_pod(cluster, job, choice).await?;
    let mut changes = watch_pod(cluster, &pod);
    let timeout = deadline.wait_passed();
    tokio::pin!(timeout);
    loop {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_ref());
        if phase.is_some_and(|phase| phase != "Pending") {
            return Ok(pod);
        }
        let change = tokio::select! {
            change = changes.next() => change,
            () = &mut timeout => return Ok(pod),
        };
        let Some(Change::Applied(object)) = change.transpose()? else {
            return Err(Error::Refused(format!(
                "pod {} was deleted",
                pod.name_any()
            )));
        };
        pod = serde_json::from_value(object).unwrap_or(pod);
    }
}

/// Watches one pod from its known state.
pub(crate) fn watch_pod(cluster: &Cluster, pod: &Pod) -> BoxStream<'static, Result<Change<Value>>> {
    let selection = Selection {
        api: ApiResource::erase::<Pod>(&()),
        namespace: pod.namespace(),
        labels: None,
        fields: Some(format!("metadata.name={}", pod.name_any())),
    };
    let version = pod.resource_version().unwrap_or_default();
    let known = serde_json::to_value(pod).unwrap_or_default();
    watch_objects(cluster, selection, &version, [&known]).boxed()
}

fn select_replica(job: &Job, replicas: &[Replica], choice: &PodChoice) -> Result<String, String> {
    let with_pods = || replicas.iter().filter(|replica| replica.pod.is_some());
    let found = match choice {
        PodChoice::Named(name) => {
            let long = format!("{}-{name}", job.name());
            let is_it = |replica: &&Replica| replica.name == *name || replica.name == long;
            replicas.iter().find(is_it)
        }
        PodChoice::Role(role, index) => with_pods()
            .filter(|replica| {
                replica.role == *role && index.is_none_or(|index| replica.index == Some(index))
            })
            // Prefer an active replica to one that is being removed or was replaced, and the leader of a
            // unit to its other pods.
            .min_by_key(|replica| {
                (
                    replica.state != EntryState::Wanted,
                    replica.leader.is_some(),
                )
            }),
    };
    if let Some(replica) = found {
        return Ok(replica.name.clone());
    }
    let job_name = job.name();
    let description = match choice {
        PodChoice::Named(name) => format!("replica {name:?}"),
        PodChoice::Role(Role::Coordinator, _) => {
            format!("pod {:?}", names::coordinator_name(job_name))
        }
        PodChoice::Role(role, None) => format!("{role} pod"),
        PodChoice::Role(role, Some(index)) => format!("{role} pod of index {index}"),
    };
    let has: Vec<_> = with_pods().map(|replica| replica.name.as_str()).collect();
    let has = match (has.as_slice(), job.status.phase) {
        ([], Some(phase)) => format!("it has no pods ({})", phase.as_str()),
        ([], None) => "it has no pods yet".to_owned(),
        (has, _) => format!("it has {}", has.join(", ")),
    };
    Err(format!("job {job_name:?} has no {description}; {has}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_choice_matches_name_role_and_index() {
        let plan = json!([
            {"name": "j-collector-ooooo", "type": "Collector", "origin": "Declared", "index": 0, "state": "Replaced"},
            {"name": "j-collector-zzzzz", "type": "Collector", "origin": "Declared", "index": 0},
            {"name": "j-collector-aaaaa", "type": "Collector", "origin": "Declared", "index": 1},
            {"name": "j-learner-aaaaa", "type": "Learner", "origin": "Declared", "index": 0},
        ]);
        let job = di_fixtures::Job::test().status(json!({"phase": "Running", "plan": plan}));
        let job = Job::from(job.json());
        let pods = [
            ("j-coordinator", "coordinator"),
            ("j-collector-ooooo", "collector"),
            ("j-collector-zzzzz", "collector"),
            ("j-collector-aaaaa", "collector"),
        ];
        let pods = pods.map(|(name, role)| di_fixtures::Pod::test(name, role).build());
        let replicas = join_plan_with_pods(&job, &pods);
        let choose = |choice| select_replica(&job, &replicas, &choice);
        let named = |name: &str| choose(PodChoice::Named(name.to_owned()));
        assert_eq!(named("coordinator").unwrap(), "j-coordinator");
        assert_eq!(named("j-collector-aaaaa").unwrap(), "j-collector-aaaaa");
        assert_eq!(named("collector-ooooo").unwrap(), "j-collector-ooooo");
        let role = |role, index| choose(PodChoice::Role(role, index));
        assert_eq!(role(Role::Coordinator, None).unwrap(), "j-coordinator");
        assert_eq!(role(Role::Collector, None).unwrap(), "j-collector-zzzzz");
        assert_eq!(role(Role::Collector, Some(0)).unwrap(), "j-collector-zzzzz");
        assert_eq!(role(Role::Collector, Some(1)).unwrap(), "j-collector-aaaaa");
        assert_eq!(
            role(Role::Learner, Some(0)).unwrap_err(),
            "job \"j\" has no learner pod of index 0; it has j-coordinator, j-collector-ooooo, j-collector-zzzzz, j-collector-aaaaa"
        );
        assert_eq!(
            select_replica(&job, &[], &PodChoice::Role(Role::Coordinator, None)).unwrap_err(),
            "job \"j\" has no pod \"j-coordinator\"; it has no pods (Running)"
        );
    }
}
