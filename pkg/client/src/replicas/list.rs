use std::collections::{BTreeMap, BTreeSet};

use di_api::{EntryState, GPU_RESOURCE, Origin, PlanEntry, QueueState, Role, names, quantity};
use di_plan::{PodView, is_ready};
use k8s_openapi::{
    api::core::v1::{Container, ContainerState, ContainerStatus, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api,
    core::{ResourceExt, params::ListParams},
};
use serde::Serialize;
use serde_json::Value;

use crate::{Cluster, Error, Job, Result, replicas::pod_status};

/// A replica of a job: plan entry and pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Name of the pod and service.
    pub name: String,
    /// Role of the replica.
    pub role: Role,
    /// Index within the role. `None` for a pod without plan entry.
    pub index: Option<i32>,
    /// Declared or requested. `None` for a pod without plan entry.
    pub origin: Option<Origin>,
    /// State of the plan entry.
    pub state: EntryState,
    /// Whether the job status counts the replica as ready. An aggregator needs all its ddp
    /// learners, a leader all pods of its unit.
    pub ready: bool,
    /// Name of the predecessor.
    pub replaces: Option<String>,
    /// Name of the aggregator of a ddp learner.
    pub aggregator: Option<String>,
    /// Name of the leader of another pod of a unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Whether the replica has completed. Its pod is not created again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// Whether the replica, which has quota of its own in a queue of Kueue, may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueState>,
    /// Time of the plan entry.
    pub planned_at: Option<Time>,
    /// Address, `pod.namespace:port`.
    pub url: String,
    /// The pod, if it exists.
    pub pod: Option<ReplicaPod>,
    /// Whether the pod is unknown because the user may not list pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
}

/// The pod of a replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaPod {
    /// Phase or a more specific reason.
    pub status: String,
    /// Number of ready containers.
    pub ready: usize,
    /// Number of containers.
    pub containers: usize,
    /// Sum of the restarts of all containers, including init containers.
    pub restarts: i32,
    /// Name of the node.
    pub node: Option<String>,
    /// Creation time.
    pub created: Option<Time>,
    /// GPUs (`nvidia.com/gpu`) of all containers.
    pub gpus: i32,
    /// The last exit of a container.
    pub last_exit: Option<ContainerExit>,
}

/// The exit of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerExit {
    /// Reason, for example `OOMKilled`.
    pub reason: Option<String>,
    /// Exit code.
    pub exit_code: i32,
}

impl Replica {
    /// The status to display: of the pod, or else of the plan entry.
    pub fn display_status(&self) -> &str {
        match (&self.pod, self.state) {
            (Some(pod), _) => &pod.status,
            (None, EntryState::Wanted) if self.done => "Succeeded",
            (None, EntryState::Wanted) if self.queue == Some(QueueState::Waiting) => "Queued",
            (None, EntryState::Wanted) if self.unseen => "Unknown",
            (None, EntryState::Wanted) => "Planned",
            (None, EntryState::Removing) => "Removing",
            (None, EntryState::Replaced) => "Replaced",
        }
    }
}

/// The replicas of a job.
#[derive(Debug)]
pub struct ReplicaList {
    /// Replicas, coordinator first.
    pub replicas: Vec<Replica>,
    /// The error if the user may not list pods. The replicas then have plan data only.
    pub unseen: Option<Error>,
}

/// Lists the replicas of a job. Without permission to list pods, returns plan data only.
pub async fn list_replicas(cluster: &Cluster, job: &Job) -> Result<ReplicaList> {
    let (pods, unseen) = match owned_pods(cluster, job).await {
        Ok(pods) => (pods, None),
        Err(error) if error.is_forbidden() => (Vec::new(), Some(error)),
        Err(error) => return Err(error),
    };
    let mut replicas = join_plan_with_pods(job, &pods);
    for replica in &mut replicas {
        replica.unseen = unseen.is_some();
    }
    Ok(ReplicaList { replicas, unseen })
}

/// Lists the pods with an owner reference to this job.
///
/// Labels are not enough: pods of a previous job of the same name have the same labels.
pub(crate) async fn owned_pods(cluster: &Cluster, job: &Job) -> Result<Vec<Pod>> {
    let selector = format!("{}={}", names::labels::JOB, job.name());
    list_owned_pods(cluster, job, &ListParams::default().labels(&selector)).await
}

/// The coordinator, the learners and the first collectors of a job: the pods of at most about `max`
/// replicas.
pub(crate) async fn sample_pods(cluster: &Cluster, job: &Job, max: u32) -> Result<Vec<Pod>> {
    let select = |operator: &str, max: u32| {
        let (key, role) = (names::labels::ROLE, Role::Collector.label());
        let labels = format!(
            "{}={},{key}{operator}{role}",
            names::labels::JOB,
            job.name()
        );
        ListParams::default().labels(&labels).limit(max)
    };
    let mut pods = list_owned_pods(cluster, job, &select("!=", max)).await?;
    let left = max.saturating_sub(u32::try_from(pods.len()).unwrap_or(max));
    // A limit of 0 would be no limit.
    if left > 0 {
        pods.extend(list_owned_pods(cluster, job, &select("=", left)).await?);
    }
    Ok(pods)
}

async fn list_owned_pods(cluster: &Cluster, job: &Job, params: &ListParams) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), job.namespace());
    let pods = api.list(params).await;
    let mut pods = pods.map_err(|error| cluster.convert_error(error))?.items;
    pods.retain(|pod| is_owned_by(pod, job));
    Ok(pods)
}

pub(crate) fn is_owned_by(pod: &Pod, job: &Job) -> bool {
    let owner = owner_uid(pod);
    owner.is_some() && owner == job.metadata.uid.as_ref()
}

fn owner_uid(pod: &Pod) -> Option<&String> {
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    Some(&owner.uid)
}

/// The leader of the unit of a pod, unless it is the leader.
fn leader_of_pod(pod: &Pod) -> Option<String> {
    let leader = pod.labels().get(names::labels::UNIT)?;
    (*leader != pod.name_any()).then(|| leader.clone())
}

pub(crate) fn role_of(pod: &Pod) -> Option<Role> {
    Role::from_label(pod.labels().get(names::labels::ROLE)?)
}

/// The facts of a pod that a replica shows. A pod is many times as large, and a job may have 2,000.
#[derive(Debug)]
pub(crate) struct ObservedPod {
    name: String,
    owner_uid: Option<String>,
    role: Option<Role>,
    aggregator: Option<String>,
    leader: Option<String>,
    ready: bool,
    port: Option<i32>,
    shown: ReplicaPod,
}

impl ObservedPod {
    pub(crate) fn is_owned_by(&self, job: &Job) -> bool {
        self.owner_uid.is_some() && self.owner_uid == job.metadata.uid
    }
}

impl From<&Pod> for ObservedPod {
    fn from(pod: &Pod) -> Self {
        Self {
            name: pod.name_any(),
            owner_uid: owner_uid(pod).cloned(),
            role: role_of(pod),
            aggregator: pod.labels().get(names::labels::AGGREGATOR).cloned(),
            leader: leader_of_pod(pod),
            ready: PodView::new(pod).is_some_and(|pod| pod.ready),
            port: named_port(pod),
            shown: pod.into(),
        }
    }
}

/// Joins the plan of a job with its pods, including pods without plan entry.
pub fn join_plan_with_pods<'a>(job: &Job, pods: impl IntoIterator<Item = &'a Pod>) -> Vec<Replica> {
    let observed: Vec<_> = pods.into_iter().map(ObservedPod::from).collect();
    join_plan_with_observed(job, &observed)
}

/// The same for pods that were observed before.
pub(crate) fn join_plan_with_observed<'a>(
    job: &Job,
    pods: impl IntoIterator<Item = &'a ObservedPod>,
) -> Vec<Replica> {
    let pods = pods.into_iter();
    let mut pods: BTreeMap<&str, _> = pods.map(|pod| (pod.name.as_str(), pod)).collect();
    let ready_pods = pods.values().filter(|pod| pod.ready);
    let ready: BTreeSet<&str> = ready_pods.map(|pod| pod.name.as_str()).collect();
    let plan = &job.status.plan;
    // The coordinator has a fixed name and no plan entry.
    let name = names::coordinator_name(job.name());
    let coordinator = PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0);
    let coordinator = Some(coordinator).filter(|entry| {
        let is_awaited = job.status.phase.is_some_and(|phase| !phase.is_terminal());
        is_awaited || pods.contains_key(entry.name.as_str())
    });
    let mut replicas: Vec<_> = plan
        .iter()
        .chain(&coordinator)
        .map(|entry| {
            let pod = pods.remove(entry.name.as_str());
            Replica {
                name: entry.name.clone(),
                role: entry.role,
                index: Some(entry.index),
                origin: Some(entry.origin),
                state: entry.state,
                ready: entry.is_wanted() && is_ready(plan, entry, |name| ready.contains(name)),
                replaces: entry.replaces.clone(),
                aggregator: entry.ddp.as_ref().map(|ddp| ddp.aggregator.clone()),
                leader: entry.unit.as_ref().and_then(|place| place.leader.clone()),
                done: entry.done,
                queue: entry.queue,
                planned_at: entry.planned_at.as_ref().map(|at| Time(at.0)),
                url: replica_url(job, entry, pod),
                pod: pod.map(|pod| pod.shown.clone()),
                unseen: false,
            }
        })
        .collect();
    for pod in pods.into_values() {
        let Some(role) = pod.role else { continue };
        let entry = PlanEntry::new(pod.name.clone(), role, Origin::Declared, 0);
        replicas.push(Replica {
            url: replica_url(job, &entry, Some(pod)),
            ready: pod.ready,
            name: entry.name,
            role,
            index: None,
            origin: None,
            state: EntryState::Wanted,
            replaces: None,
            aggregator: pod.aggregator.clone(),
            leader: pod.leader.clone(),
            done: false,
            queue: None,
            planned_at: None,
            pod: Some(pod.shown.clone()),
            unseen: false,
        });
    }
    replicas.sort_by(|a, b| {
        let key = |r: &Replica| {
            (
                r.role,
                r.index.unwrap_or(i32::MAX),
                r.state == EntryState::Wanted,
            )
        };
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    replicas
}

impl From<&Pod> for ReplicaPod {
    fn from(pod: &Pod) -> Self {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|s| s.container_statuses.as_deref());
        let statuses = statuses.unwrap_or_default();
        let status = pod.status.iter();
        let inits = status.flat_map(|s| s.init_container_statuses.iter().flatten());
        let spec = pod.spec.as_ref();
        Self {
            status: pod_status::display_status(pod),
            ready: statuses.iter().filter(|c| c.ready).count(),
            containers: spec.map_or(statuses.len(), |spec| spec.containers.len()),
            restarts: inits.chain(statuses).map(|c| c.restart_count).sum(),
            node: spec.and_then(|spec| spec.node_name.clone()),
            created: pod.metadata.creation_timestamp.clone(),
            gpus: spec.map_or(0, |spec| spec.containers.iter().map(container_gpus).sum()),
            last_exit: last_exit(statuses),
        }
    }
}

fn container_gpus(container: &Container) -> i32 {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let gpus = limits.and_then(|limits| limits.get(GPU_RESOURCE));
    gpus.and_then(|gpus| quantity::parse_count(&gpus.0))
        .unwrap_or(0)
}

fn last_exit(statuses: &[ContainerStatus]) -> Option<ContainerExit> {
    // Use the current exit, or the previous one if the container was restarted.
    let ends = statuses.iter().filter_map(|container| {
        let ended = |state: &Option<ContainerState>| state.as_ref()?.terminated.clone();
        ended(&container.state).or_else(|| ended(&container.last_state))
    });
    let last = ends.max_by_key(|end| end.finished_at.as_ref().map(|at| at.0))?;
    Some(ContainerExit {
        reason: last.reason.filter(|reason| !reason.is_empty()),
        exit_code: last.exit_code,
    })
}

fn named_port(pod: &Pod) -> Option<i32> {
    let containers = &pod.spec.as_ref()?.containers;
    let mut ports = containers.iter().flat_map(|c| c.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(names::PORT_NAME))?;
    Some(port.container_port)
}

fn replica_url(job: &Job, entry: &PlanEntry, pod: Option<&ObservedPod>) -> String {
    let from_pod = pod.and_then(|pod| pod.port);
    let planned = || {
        let base = entry
            .port
            .or_else(|| declared_port(&job.object, entry.role))
            .unwrap_or(entry.role.default_port());
        // A ddp learner listens at the base port plus its start rank.
        base + entry.ddp.as_ref().map_or(0, |place| place.start_rank)
    };
    names::replica_url(
        &entry.name,
        job.namespace(),
        from_pod.unwrap_or_else(planned),
    )
}

/// The port in the pod template of a role. Reads JSON, so it works for undecodable jobs.
fn declared_port(job: &Value, role: Role) -> Option<i32> {
    let owner = match role {
        Role::DdpLearner => Role::Learner,
        role => role,
    };
    let section = &job["spec"][owner.label()];
    let leader = &section["unit"]["leaderTemplate"];
    let template = if leader.is_object() {
        leader
    } else {
        &section["template"]
    };
    let containers = &template["spec"]["containers"];
    let ports = containers
        .as_array()?
        .iter()
        .filter_map(|c| c["ports"].as_array());
    let port = ports
        .flatten()
        .find(|port| port["name"] == names::PORT_NAME)?;
    i32::try_from(port["containerPort"].as_i64()?).ok()
}

#[cfg(test)]
mod tests;
