use di_api::{ConditionType, EntryState, PlanEntry, Role, condition, is_true, names};
use di_plan::{PodView, aggregator_of, find, members, victims};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    core::{
        ResourceExt,
        params::{DeleteParams, Preconditions},
    },
};

use crate::{
    Cluster, Counts, DryRun, Error, Job, Outlook, Result,
    edit::{Edit, annotate, edit, refuse_ended},
    replicas::{is_of, pods, role_of},
    scale::unit,
};

/// A pod whose place another is to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What it does.
    pub role: Role,
    /// Names of the other pods of its logic learner, which go with it.
    pub others: Vec<String>,
}

/// Asks the orchestrator to replace the coordinator that runs now. It does so only once it has noted that the end of this one is not that of the
/// job; a pod that is simply deleted may exit with 0, and so end it.
///
/// # Errors
/// [`Error::Refused`] when there is nothing to be replaced.
pub async fn restart(cluster: &Cluster, name: &str, dry_run: DryRun) -> Result<(Job, Restarted)> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace().name);
    let job = crate::job(cluster, name).await?;
    can_restart(&job)?;
    let coordinator = names::coordinator(name);
    let found = api.get_opt(&coordinator).await;
    let found = found.map_err(|error| cluster.error(error))?;
    let Some(pod) = found.filter(|pod| is_of(pod, &job)) else {
        return Err(Error::Refused(format!(
            "job {name:?} has no coordinator yet; nothing was changed"
        )));
    };
    let restarted = Restarted {
        uid: pod.uid().unwrap_or_default(),
        name: coordinator,
        role: Role::Coordinator,
        others: Vec::new(),
    };
    let (job, ()) = edit(cluster, name, dry_run, |job| {
        can_restart(job)?;
        if !is_of(&pod, job) {
            return Err(Error::Refused(format!(
                "job {name:?} is another by now; nothing was changed"
            )));
        }
        Ok(Edit {
            operations: annotate(job, names::RESTART_ANNOTATION, &restarted.uid),
            told: (),
        })
    })
    .await?;
    Ok((job, restarted))
}

fn can_restart(job: &Job) -> Result<()> {
    refuse_ended(
        job,
        "; what has ended never runs again: create a new one instead",
    )?;
    if job.is_held() {
        return Err(Error::Refused(format!(
            "job {:?} is suspended; kubectl di resume {0} starts it again",
            job.name()
        )));
    }
    Ok(())
}

/// Whether another coordinator runs in the place of one that was to be restarted.
pub fn has_restarted(job: &Job, old: &Restarted) -> Outlook {
    if let Some(never) = over(job, "its coordinator ran again") {
        return never;
    }
    let running = is_true(&job.status.conditions, ConditionType::Running);
    if job.status.failed_coordinator.as_ref() == Some(&old.uid) && running {
        Outlook::Met
    } else {
        Outlook::Open
    }
}

/// Which replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichReplicas {
    /// Those of these names.
    Named(Vec<String>),
    /// Collectors, learners, or both; not those that are done.
    Of(Counts<HowMany>),
}

/// How many replicas of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HowMany {
    /// None.
    #[default]
    None,
    /// So many, those first that go first where fewer are declared.
    First(usize),
    /// All of them.
    All,
}

/// The pods that have to go so that these replicas are replaced: of a logic learner one, for it is replaced whole.
///
/// # Errors
/// [`Error::Refused`] says which name is of no replica.
pub async fn replicas_to_restart(
    cluster: &Cluster,
    job: &Job,
    which: &WhichReplicas,
) -> Result<Vec<Restarted>> {
    can_restart(job)?;
    let pods = pods(cluster, job).await?;
    choose(job, &pods, which).map_err(Error::Refused)
}

fn choose(job: &Job, pods: &[Pod], which: &WhichReplicas) -> Result<Vec<Restarted>, String> {
    let plan = &job.status.plan;
    let mut chosen = Vec::new();
    match which {
        WhichReplicas::Named(names) => {
            for name in names {
                let entry = unit(job, name)?;
                if entry.done {
                    return Err(format!(
                        "{} has done its work, and is not run again; nothing was changed",
                        entry.name
                    ));
                }
                let found = pod_of(job, pods, &entry.name);
                chosen.push(found.ok_or_else(|| {
                    format!("{} has no pod yet; nothing was changed", entry.name)
                })?);
            }
        }
        WhichReplicas::Of(counts) => {
            let views: Vec<_> = pods.iter().filter_map(PodView::new).collect();
            for (role, how_many) in counts.by_role() {
                if how_many == HowMany::None {
                    continue;
                }
                let all = victims(plan, &views, |entry| entry.role.counted_as() == role);
                let there = all
                    .into_iter()
                    .filter_map(|i| pod_of(job, pods, &plan[i].name));
                let mut there: Vec<_> = there
                    .filter(|pod| !is_done(pod) && !is_going(pod))
                    .collect();
                if let HowMany::First(count) = how_many {
                    if count > there.len() {
                        return Err(format!(
                            "cannot restart {count} {role}s of job {:?}: {} have a pod that could be replaced",
                            job.name(),
                            there.len()
                        ));
                    }
                    there.truncate(count);
                }
                chosen.extend(there);
            }
        }
    }
    chosen.sort_by_key(|pod| pod.name_any());
    chosen.dedup_by_key(|pod| pod.name_any());
    let chosen = chosen.into_iter().filter(|pod| !is_going(pod));
    Ok(chosen
        .map(|pod| Restarted {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            role: role_of(pod).unwrap_or(Role::Collector),
            others: others(plan, pods, &pod.name_any()),
        })
        .collect())
}

/// The pods of a logic learner beside one of them.
fn others(plan: &[PlanEntry], pods: &[Pod], name: &str) -> Vec<String> {
    let leader = find(plan, name).and_then(aggregator_of).unwrap_or(name);
    let unit = find(plan, leader)
        .into_iter()
        .chain(members(plan, leader))
        .filter(|entry| entry.name != name);
    let is_there = |entry: &&PlanEntry| pods.iter().any(|pod| pod.name_any() == entry.name);
    let there = unit.filter(is_there);
    there.map(|entry| entry.name.clone()).collect()
}

/// The pod of a replica; of a logic learner whose aggregator has none, another of its unit.
fn pod_of<'a>(job: &Job, pods: &'a [Pod], name: &str) -> Option<&'a Pod> {
    let find = |name: &str| pods.iter().find(|pod| pod.name_any() == name);
    find(name).or_else(|| {
        let of_unit = |place: &di_api::Ddp| place.aggregator == name;
        let mut members = job
            .status
            .plan
            .iter()
            .filter(|entry| entry.ddp.as_ref().is_some_and(of_unit));
        members.find_map(|entry| find(&entry.name))
    })
}

fn is_done(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Succeeded")
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Deletes exactly this pod, with its own grace; whether it was there.
pub async fn delete_pod(cluster: &Cluster, pod: &Restarted, dry_run: DryRun) -> Result<bool> {
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
        // Gone, or already another of its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(cluster.error(error)),
    }
}

/// How far the replicas of a job are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Those that are ready.
    pub ready: u64,
    /// Those that the plan wants.
    pub wanted: u64,
}

impl Progress {
    /// As the status tells it.
    pub fn of(job: &Job) -> Self {
        let status = &job.status;
        let told = [&status.collectors_ready, &status.learners_ready];
        let mut all = Self::default();
        for told in told.into_iter().flatten() {
            if let Some((ready, wanted)) = told.split_once('/') {
                all.ready += ready.parse::<u64>().unwrap_or(0);
                all.wanted += wanted.parse::<u64>().unwrap_or(0);
            }
        }
        all
    }
}

/// The replicas that were let go of and are still there.
pub fn leaving(job: &Job) -> impl Iterator<Item = &str> {
    let plan = job.status.plan.iter();
    let leaving = plan.filter(|entry| entry.state == EntryState::Removing);
    leaving.map(|entry| entry.name.as_str())
}

/// Whether the orchestrator has seen a job as it is at `generation`, none of `old` is wanted any more, and all that are wanted are ready.
pub fn replicas_are_ready(job: &Job, generation: Option<i64>, old: &[Restarted]) -> Outlook {
    if let Some(never) = over(job, "its replicas were ready") {
        return never;
    }
    let status = &job.status;
    let wanted = || {
        let plan = status.plan.iter();
        plan.filter(|entry| entry.is_wanted() && !entry.done)
    };
    let is_old = |uid: &String| old.iter().any(|old| old.uid == *uid);
    let fresh = wanted().all(|entry| entry.uid.as_ref().is_some_and(|uid| !is_old(uid)));
    let ready = is_true(&status.conditions, ConditionType::ReplicasReady);
    if status.observed_generation >= generation && fresh && ready {
        Outlook::Met
    } else {
        Outlook::Open
    }
}

fn over(job: &Job, before: &str) -> Option<Outlook> {
    if let Some(phase) = job.status.phase.filter(|phase| phase.is_terminal()) {
        let end = condition(&job.status.conditions, ConditionType::Failed);
        let why = end.map_or(String::new(), |end| format!(": {}", end.message));
        return Some(Outlook::Never(format!(
            "{} ended ({}{why}) before {before}",
            job.title(),
            phase.as_str()
        )));
    }
    job.is_held()
        .then(|| Outlook::Never(format!("{} was suspended before {before}", job.title())))
}

#[cfg(test)]
mod tests;
