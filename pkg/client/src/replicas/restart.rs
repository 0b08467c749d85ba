use di_api::{
    ConditionType, EntryState, PlanEntry, Role, find_condition, is_condition_true, names,
};
use di_plan::{PodView, find_entry, group_members, leader_of, scale_down_order};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    core::{
        ResourceExt,
        params::{DeleteParams, Preconditions},
    },
};

use crate::{
    Cluster, Counts, DryRun, Error, Job, Result, WaitState,
    jobs::guarded_patch::{GuardedPatch, annotation_operations, patch_job, refuse_ended},
    replicas::{
        list::{is_owned_by, owned_pods, role_of},
        plan_entry::find_entry_of_pod,
    },
};

/// A pod to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartedPod {
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Role of the replica.
    pub role: Role,
    /// Names of the other pods of its learner group, which are replaced with it.
    pub others: Vec<String>,
}

/// Requests a replacement of the current coordinator by an annotation.
///
/// The orchestrator first records that the exit of this pod does not end the job. A pod that is
/// only
/// deleted may exit with 0 and so end the job. See docs/decisions/0015.
///
/// # Errors
/// [`Error::Refused`] if there is no coordinator.
pub async fn restart_coordinator(
    cluster: &Cluster,
    name: &str,
    dry_run: DryRun,
) -> Result<(Job, RestartedPod)> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace().name);
    let job = crate::get_job(cluster, name).await?;
    can_restart(&job)?;
    let coordinator = names::coordinator_name(name);
    let found = api.get_opt(&coordinator).await;
    let found = found.map_err(|error| cluster.convert_error(error))?;
    let Some(pod) = found.filter(|pod| is_owned_by(pod, &job)) else {
        return Err(Error::Refused(format!(
            "job {name:?} has no coordinator pod yet; nothing was changed"
        )));
    };
    let restarted = RestartedPod {
        uid: pod.uid().unwrap_or_default(),
        name: coordinator,
        role: Role::Coordinator,
        others: Vec::new(),
    };
    let (job, ()) = patch_job(cluster, name, dry_run, |job| {
        can_restart(job)?;
        if !is_owned_by(&pod, job) {
            return Err(Error::Refused(format!(
                "job {name:?} was deleted and created again; nothing was changed, try again"
            )));
        }
        Ok(GuardedPatch {
            operations: annotation_operations(job, names::RESTART_ANNOTATION, &restarted.uid),
            outcome: (),
        })
    })
    .await?;
    Ok((job, restarted))
}

fn can_restart(job: &Job) -> Result<()> {
    refuse_ended(
        job,
        "; an ended job cannot run again: create a new job instead",
    )?;
    if job.is_suspended() {
        return Err(Error::Refused(format!(
            "job {:?} is suspended and has no pods; to start it: kubectl di resume {0}",
            job.name()
        )));
    }
    Ok(())
}

/// Whether a new coordinator runs instead of the restarted one.
pub fn restarted_state(job: &Job, old: &RestartedPod) -> WaitState {
    if let Some(impossible) = impossible_after_end(job, "its coordinator ran again") {
        return impossible;
    }
    let running = is_condition_true(&job.status.conditions, ConditionType::Running);
    if job.status.failed_coordinator.as_ref() == Some(&old.uid) && running {
        WaitState::Met
    } else {
        WaitState::Pending
    }
}

/// Selects replicas to restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartSelection {
    /// Replicas by name.
    Named(Vec<String>),
    /// Collectors and learners by count, without replicas that have completed.
    ByRole(Counts<RestartCount>),
}

/// The number of replicas of a role to restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartCount {
    /// No replica.
    #[default]
    None,
    /// The first replicas in scale-down order.
    First(usize),
    /// All replicas.
    All,
}

/// The pods to delete so that the selected replicas are replaced.
///
/// One pod of a learner group is enough: the orchestrator replaces the whole group.
/// See docs/decisions/0008.
///
/// # Errors
/// [`Error::Refused`] if a name is no replica of the job.
pub async fn replicas_to_restart(
    cluster: &Cluster,
    job: &Job,
    selection: &RestartSelection,
) -> Result<Vec<RestartedPod>> {
    can_restart(job)?;
    let pods = owned_pods(cluster, job).await?;
    select_replicas(job, &pods, selection).map_err(Error::Refused)
}

fn select_replicas(
    job: &Job,
    pods: &[Pod],
    selection: &RestartSelection,
) -> Result<Vec<RestartedPod>, String> {
    let plan = &job.status.plan;
    let mut chosen = Vec::new();
    match selection {
        RestartSelection::Named(names) => {
            for name in names {
                let entry = find_entry_of_pod(job, name)?;
                if entry.done {
                    return Err(format!(
                        "replica {} has completed and cannot be restarted; nothing was changed",
                        entry.name
                    ));
                }
                let found = pod_of(job, pods, &entry.name);
                chosen.push(found.ok_or_else(|| {
                    format!("replica {} has no pod yet; nothing was changed", entry.name)
                })?);
            }
        }
        RestartSelection::ByRole(counts) => {
            let views: Vec<_> = pods.iter().filter_map(PodView::new).collect();
            for (role, how_many) in counts.by_role() {
                if how_many == RestartCount::None {
                    continue;
                }
                let all = scale_down_order(plan, &views, |entry| entry.counts_as(role));
                let existing = all
                    .into_iter()
                    .filter_map(|i| pod_of(job, pods, &plan[i].name));
                let mut existing: Vec<_> = existing
                    .filter(|pod| !is_done(pod) && !is_terminating(pod))
                    .collect();
                if let RestartCount::First(count) = how_many {
                    if count > existing.len() {
                        return Err(format!(
                            "cannot restart {count} {role}s of job {:?}: only {} have a pod that can be restarted",
                            job.name(),
                            existing.len()
                        ));
                    }
                    existing.truncate(count);
                }
                chosen.extend(existing);
            }
        }
    }
    chosen.sort_by_key(|pod| pod.name_any());
    chosen.dedup_by_key(|pod| pod.name_any());
    let chosen = chosen.into_iter().filter(|pod| !is_terminating(pod));
    Ok(chosen
        .map(|pod| RestartedPod {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            role: role_of(pod).unwrap_or(Role::Collector),
            others: other_members(plan, pods, &pod.name_any()),
        })
        .collect())
}

/// The other pods of the unit or learner group of a replica.
fn other_members(plan: &[PlanEntry], pods: &[Pod], name: &str) -> Vec<String> {
    let leader = find_entry(plan, name).and_then(leader_of).unwrap_or(name);
    let members = find_entry(plan, leader)
        .into_iter()
        .chain(group_members(plan, leader))
        .filter(|entry| entry.name != name);
    let is_there = |entry: &&PlanEntry| pods.iter().any(|pod| pod.name_any() == entry.name);
    let existing = members.filter(is_there);
    existing.map(|entry| entry.name.clone()).collect()
}

/// The pod of a replica. An aggregator or leader without pod is represented by a pod that follows it.
fn pod_of<'a>(job: &Job, pods: &'a [Pod], name: &str) -> Option<&'a Pod> {
    let find = |name: &str| pods.iter().find(|pod| pod.name_any() == name);
    find(name).or_else(|| {
        let mut members = group_members(&job.status.plan, name);
        members.find_map(|entry| find(&entry.name))
    })
}

fn is_done(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Succeeded")
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Deletes exactly this pod with its own grace period. Returns whether the pod existed.
pub async fn delete_pod(cluster: &Cluster, pod: &RestartedPod, dry_run: DryRun) -> Result<bool> {
    if dry_run == DryRun::Client {
        return Ok(true);
    }
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace().name);
    let params = DeleteParams {
        dry_run: dry_run == DryRun::Server,
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&pod.name, &params).await {
        Ok(_) => Ok(true),
        // 404: already deleted. 409: a new pod has this name (the UID precondition failed).
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(cluster.convert_error(error)),
    }
}

/// Ready and desired replicas of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Replicas that are ready or done.
    pub ready: u64,
    /// Desired replicas.
    pub wanted: u64,
}

impl Progress {
    /// Reads the counts from the status of a job.
    pub fn of_job(job: &Job) -> Self {
        let status = &job.status;
        let counts = [&status.collectors_ready, &status.learners_ready];
        let mut all = Self::default();
        for count in counts.into_iter().flatten() {
            // `ready/wanted` or `ready/wanted (number done)`
            let mut numbers = count
                .split(|c: char| !c.is_ascii_digit())
                .map(|number| number.parse::<u64>().unwrap_or(0));
            all.ready += numbers.next().unwrap_or(0);
            all.wanted += numbers.next().unwrap_or(0);
            all.ready += numbers.sum::<u64>();
        }
        all
    }
}

/// Names of the replicas that are being removed.
pub fn removing_replicas(job: &Job) -> impl Iterator<Item = &str> {
    let plan = job.status.plan.iter();
    let removing = plan.filter(|entry| entry.state == EntryState::Removing);
    removing.map(|entry| entry.name.as_str())
}

/// Whether all replicas are ready at `generation` and all of `old` are replaced.
pub fn replicas_ready_state(job: &Job, generation: Option<i64>, old: &[RestartedPod]) -> WaitState {
    if let Some(impossible) = impossible_after_end(job, "its replicas were ready") {
        return impossible;
    }
    let status = &job.status;
    let wanted = || {
        let plan = status.plan.iter();
        plan.filter(|entry| entry.is_wanted() && !entry.done)
    };
    let is_old = |uid: &String| old.iter().any(|old| old.uid == *uid);
    let all_replaced = wanted().all(|entry| entry.uid.as_ref().is_some_and(|uid| !is_old(uid)));
    let ready = is_condition_true(&status.conditions, ConditionType::ReplicasReady);
    if status.observed_generation >= generation && all_replaced && ready {
        WaitState::Met
    } else {
        WaitState::Pending
    }
}

fn impossible_after_end(job: &Job, before: &str) -> Option<WaitState> {
    if let Some(phase) = job.status.phase.filter(|phase| phase.is_terminal()) {
        let end = find_condition(&job.status.conditions, ConditionType::Failed);
        let why = end.map_or(String::new(), |end| format!(": {}", end.message));
        return Some(WaitState::Impossible(format!(
            "{} ended ({}{why}) before {before}",
            job.resource_name(),
            phase.as_str()
        )));
    }
    job.is_suspended().then(|| {
        WaitState::Impossible(format!(
            "{} was suspended before {before}",
            job.resource_name()
        ))
    })
}

#[cfg(test)]
mod tests;
