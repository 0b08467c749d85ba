//! The jobs and replicas that wait in queues of Kueue or for their gang, for `kubectl di queue`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
    time::Duration,
};

use di_api::{ConditionType, Phase, PlanEntry, QueueState, Reason, Role, find_condition, names};
use di_plan::job_object_name;
use futures::{StreamExt, future, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::{ApiResource, GroupVersionKind};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    Cluster, Error, Job, JobQuery, Result, connection::resource::Resource, get_job, list_jobs,
};

/// API group of Kueue that serves the positions in queues.
const VISIBILITY_GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the newest first.
const VISIBILITY_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// Maximum number of concurrent reads.
const MAX_CONCURRENT_READS: usize = 8;
/// Positions are not worth a longer wait.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A job in a queue of Kueue, or one that waits for its gang.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// Namespace of the job.
    pub namespace: String,
    /// Name of the job.
    pub name: String,
    /// Name of the LocalQueue, or of the gang scheduler's queue while the job waits for its gang.
    pub queue: Option<String>,
    /// Whether the job or some of its replicas wait.
    pub waits: bool,
    /// Whether the job waits for its gang.
    pub waits_for_gang: bool,
    /// Replicas that wait while the job runs.
    pub waiting_replicas: WaitingReplicas,
    /// Position of the first waiting Workload in the LocalQueue. Like Kueue, it counts from 0.
    /// `None` if it is unknown or nothing waits.
    pub position: Option<i64>,
    /// Start of the wait.
    pub since: Option<Time>,
    /// Why the job waits, or the reason of its admission.
    pub reason: Option<String>,
    /// Message for the reason, mostly of Kueue itself.
    pub message: String,
    /// ClusterQueue that admitted the job.
    pub cluster_queue: Option<String>,
}

/// Number of replicas that wait for quota of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingReplicas {
    /// Number of collectors.
    pub collectors: usize,
    /// Number of learners. A learner group counts as one.
    pub learners: usize,
}

impl WaitingReplicas {
    /// Number of all replicas.
    pub fn total(self) -> usize {
        self.collectors + self.learners
    }
}

impl Display for WaitingReplicas {
    /// Formats the numbers, such as `3 collectors and 1 learner`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = [("collector", self.collectors), ("learner", self.learners)];
        let mut separator = "";
        for (role, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let plural = if count == 1 { "" } else { "s" };
            write!(f, "{separator}{count} {role}{plural}")?;
            separator = " and ";
        }
        Ok(())
    }
}

/// The waiting Workloads of each LocalQueue that could be read, by namespace and name.
type PendingByQueue = BTreeMap<(String, String), Vec<PendingWorkload>>;

/// A Workload that waits in a LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingWorkload {
    name: String,
    position: i64,
}

/// Lists the jobs that wait in a queue or for their gang, or that have replicas that wait. With a
/// name, lists only that job, even if it does not wait.
pub async fn list_queue(
    cluster: &Cluster,
    name: Option<&str>,
    all_namespaces: bool,
) -> Result<Vec<QueueRow>> {
    let jobs = if let Some(name) = name {
        vec![get_job(cluster, name).await?]
    } else {
        let query = JobQuery {
            all_namespaces,
            ..JobQuery::default()
        };
        // Without a label selector: a job that waits for its gang has no label of a queue.
        let mut jobs = list_jobs(cluster, &query).await?.jobs;
        jobs.retain(|job| job.waits_in_queue() || job.gang_wait().is_some());
        jobs
    };
    let pending = read_pending(cluster, &jobs).await;
    Ok(rows_from(&jobs, &pending))
}

/// Reads the position of a job in its LocalQueue: that of its first waiting Workload. Like Kueue, it
/// counts from 0. `None` if it is unknown or nothing waits.
pub async fn read_queue_position(cluster: &Cluster, job: &Job) -> Option<i64> {
    find_position(job, &read_pending(cluster, std::slice::from_ref(job)).await)
}

/// Builds the rows of jobs. A position is known if `pending` has the LocalQueue of the job.
fn rows_from(jobs: &[Job], pending: &PendingByQueue) -> Vec<QueueRow> {
    let row = |job: &Job| {
        let wait = Wait::from_job(job);
        let waits_for_gang = job.gang_wait().is_some();
        let queue = if waits_for_gang {
            job.gang_queue()
        } else {
            job.queue_name()
        };
        QueueRow {
            namespace: job.namespace().to_owned(),
            name: job.name().to_owned(),
            queue: queue.map(str::to_owned),
            waits: job.waits_in_queue() || waits_for_gang,
            waits_for_gang,
            waiting_replicas: wait.replicas,
            position: find_position(job, pending).filter(|_| !waits_for_gang),
            since: wait.since,
            reason: wait.reason,
            message: wait.message,
            cluster_queue: job.cluster_queue().map(str::to_owned),
        }
    };
    jobs.iter().map(row).collect()
}

fn find_position(job: &Job, pending: &PendingByQueue) -> Option<i64> {
    let queue = job.queue_name().filter(|_| job.waits_in_queue())?;
    let workloads = pending.get(&(job.namespace().to_owned(), queue.to_owned()))?;
    let own = workloads.iter().filter(|workload| workload.belongs_to(job));
    own.map(|workload| workload.position).min()
}

/// Reasons of the condition `ReplicasReady` that more quota does not solve.
const PROBLEMS: [Reason; 4] = [
    Reason::FlavorConflict,
    Reason::QueueForbidden,
    Reason::QueueNotServed,
    Reason::QueueTooManyShapes,
];

/// Reasons of the condition `ReplicasReady` that are about the gang.
const GANG_REASONS: [Reason; 4] = [
    Reason::GangWaiting,
    Reason::GangForbidden,
    Reason::GangNameTaken,
    Reason::NoGangScheduler,
];

/// What the status of a job says about its wait.
struct Wait {
    replicas: WaitingReplicas,
    since: Option<Time>,
    reason: Option<String>,
    message: String,
}

impl Wait {
    fn from_job(job: &Job) -> Self {
        if let Some(about) = job.gang_wait() {
            return Self::from_gang(about);
        }
        let wait = if job.waits_in_queue() && !job.waits_for_admission() {
            Self::from_replicas(job)
        } else {
            Self::from_admission(job)
        };
        let about = find_condition(&job.status.conditions, ConditionType::ReplicasReady);
        let is_problem = |reason: &str| PROBLEMS.iter().any(|one| one.as_str() == reason);
        match about.filter(|about| job.waits_in_queue() && is_problem(&about.reason)) {
            Some(problem) => Self {
                reason: Some(problem.reason.clone()),
                message: problem.message.clone(),
                ..wait
            },
            None => wait,
        }
    }

    /// No added replica starts before the gang, so those that wait for quota are left out.
    fn from_gang(about: &Condition) -> Self {
        Self {
            replicas: WaitingReplicas::default(),
            since: Some(about.last_transition_time.clone()),
            reason: Some(about.reason.clone()),
            message: about.message.clone(),
        }
    }

    fn from_replicas(job: &Job) -> Self {
        let reason = Reason::QueueWaiting.as_str();
        let about = find_condition(&job.status.conditions, ConditionType::ReplicasReady);
        // The condition may name a more severe problem of another replica.
        let about = about.filter(|about| about.reason == reason);
        let planned = job.waiting_entries();
        let planned = planned.filter_map(|entry| entry.planned_at.as_ref().map(|at| at.0));
        Self {
            replicas: job.waiting_replicas(),
            since: planned.min().map(Time),
            reason: Some(reason.to_owned()),
            message: about.map_or_else(String::new, |about| about.message.clone()),
        }
    }

    fn from_admission(job: &Job) -> Self {
        let admitted = find_condition(&job.status.conditions, ConditionType::Admitted);
        let since = admitted.map(|admitted| admitted.last_transition_time.clone());
        let since = since.or_else(|| job.metadata.creation_timestamp.clone());
        Self {
            replicas: WaitingReplicas::default(),
            since: since.filter(|_| job.waits_in_queue()),
            reason: admitted.map(|admitted| admitted.reason.clone()),
            message: admitted.map_or_else(String::new, |admitted| admitted.message.clone()),
        }
    }
}

impl Job {
    /// Name of the LocalQueue of Kueue that the job waits in.
    pub fn queue_name(&self) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        let queue = labels.get(names::kueue::QUEUE_LABEL)?;
        (!queue.is_empty()).then_some(queue.as_str())
    }

    /// Name of the queue of the gang scheduler.
    fn gang_queue(&self) -> Option<&str> {
        let queue = self.object["spec"]["scheduling"]["queue"].as_str();
        queue.filter(|queue| !queue.is_empty())
    }

    /// Name of the ClusterQueue that admitted the job.
    pub fn cluster_queue(&self) -> Option<&str> {
        let queueing = self.status.queueing.as_ref()?;
        let queue = queueing.cluster_queue.as_str();
        (!queue.is_empty()).then_some(queue)
    }

    /// Number of replicas that wait for quota of their own.
    pub fn waiting_replicas(&self) -> WaitingReplicas {
        let mut waiting = WaitingReplicas::default();
        for entry in self.waiting_entries() {
            match entry.role {
                Role::Collector => waiting.collectors += 1,
                Role::Learner | Role::Aggregator => waiting.learners += 1,
                // A learner group counts as one: its aggregator.
                Role::DdpLearner | Role::Coordinator => {}
            }
        }
        waiting
    }

    fn waiting_entries(&self) -> impl Iterator<Item = &PlanEntry> {
        let plan = self.status.plan.iter();
        plan.filter(|entry| {
            entry.is_wanted() && !entry.done && entry.queue == Some(QueueState::Waiting)
        })
    }

    /// Whether the job waits in a queue, or has replicas that wait for quota of their own.
    fn waits_in_queue(&self) -> bool {
        if self.has_ended() || self.is_suspended() {
            return false;
        }
        self.waits_for_admission() || self.waiting_replicas().total() > 0
    }

    /// Whether the whole job waits. The pods of a preempted job may still end.
    fn waits_for_admission(&self) -> bool {
        let admitted = find_condition(&self.status.conditions, ConditionType::Admitted);
        let is_refused = admitted.is_some_and(|admitted| admitted.status == "False");
        self.status.phase == Some(Phase::Queued) || is_refused
    }

    /// The condition `ReplicasReady` if its reason is about the gang of the job.
    pub fn gang_condition(&self) -> Option<&Condition> {
        let about = find_condition(&self.status.conditions, ConditionType::ReplicasReady)?;
        let is_about_gang = GANG_REASONS.iter().any(|one| one.as_str() == about.reason);
        is_about_gang.then_some(about)
    }

    /// The condition that says why the gang of the job has no nodes. `None` if the job does not wait
    /// for a gang.
    fn gang_wait(&self) -> Option<&Condition> {
        let gang = self.status.scheduling.as_ref();
        let is_placed = gang.is_some_and(|gang| gang.placed);
        if self.has_ended() || self.is_suspended() || is_placed {
            return None;
        }
        // With this reason, a job runs without a gang, or keeps one that waits.
        let no_scheduler = Reason::NoGangScheduler.as_str();
        let about = self.gang_condition()?;
        (gang.is_some() || about.reason != no_scheduler).then_some(about)
    }
}

impl PendingWorkload {
    /// Whether the Workload belongs to a job.
    fn belongs_to(&self, job: &Job) -> bool {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let base = job_object_name(job.name(), uid);
        let rest = self.name.strip_prefix(&base);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// Reads the waiting Workloads of the queues that these jobs wait in.
async fn read_pending(cluster: &Cluster, jobs: &[Job]) -> PendingByQueue {
    let waiting = jobs.iter().filter(|job| job.waits_in_queue());
    let queues: BTreeSet<_> = waiting
        .filter_map(|job| Some((job.namespace().to_owned(), job.queue_name()?.to_owned())))
        .collect();
    let reads = queues.into_iter().map(|(namespace, queue)| async move {
        let pending = read_pending_in(cluster, &namespace, &queue).await;
        pending.map(|pending| ((namespace, queue), pending))
    });
    stream::iter(reads.collect::<Vec<_>>())
        .buffer_unordered(MAX_CONCURRENT_READS)
        .filter_map(future::ready)
        .collect()
        .await
}

/// Reads the waiting Workloads of a LocalQueue. `None` without that API of Kueue, or without the
/// permission to use it.
async fn read_pending_in(
    cluster: &Cluster,
    namespace: &str,
    queue: &str,
) -> Option<Vec<PendingWorkload>> {
    for version in VISIBILITY_VERSIONS {
        let kind = GroupVersionKind::gvk(VISIBILITY_GROUP, version, "LocalQueue");
        let api = ApiResource::from_gvk_with_plural(&kind, "localqueues");
        let resource = Resource::new(cluster, &api, Some(namespace));
        let read = resource.get_subresource(queue, "pendingworkloads");
        match timeout(READ_TIMEOUT, read).await.ok()? {
            Ok(summary) => return Some(parse_pending(&summary)),
            Err(Error::NoSuchResource { .. }) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Parses a PendingWorkloadsSummary.
fn parse_pending(summary: &Value) -> Vec<PendingWorkload> {
    let items = summary["items"].as_array().into_iter().flatten();
    let workload = |item: &Value| {
        let metadata = &item["metadata"];
        Some(PendingWorkload {
            name: metadata["name"].as_str()?.to_owned(),
            position: item["positionInLocalQueue"].as_i64()?,
        })
    };
    items.filter_map(workload).collect()
}

#[cfg(test)]
mod tests;
