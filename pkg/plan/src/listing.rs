use std::collections::HashSet;

use di_api::{DIJob, PlanEntry, Role, names};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    ops::{aggregator_of, members},
    ports::port_of,
    view::{PodView, Stage},
};

/// The replicas that a coordinator may use now, as URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Collectors.
    pub collectors: Vec<String>,
    /// Learners, and aggregators for learners of several GPUs.
    pub learners: Vec<String>,
}

/// Lists a job's replicas: those that the plan wants, but for those that ended, are being deleted, or that Kubernetes says cannot start. An
/// aggregator is as good as its worst ddp learner.
///
/// `pod` looks a pod up by name. A replica whose pod nobody has seen yet is listed: it is on its way.
pub fn listing<'a>(
    job: &DIJob,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    now: Timestamp,
) -> Listing {
    let plan = plan(job);
    let broken: HashSet<&str> = plan
        .iter()
        .filter(|entry| entry.is_wanted() && usable(job, entry, &pod, now).is_none())
        .filter_map(aggregator_of)
        .collect();
    let url = |entry: &PlanEntry| {
        let port = usable(job, entry, &pod, now).filter(|_| !broken.contains(&*entry.name))?;
        Some(url(job, entry, port))
    };
    let of = |role: Role| plan.iter().filter(move |entry| entry.role == role);
    Listing {
        collectors: of(Role::Collector).filter_map(url).collect(),
        learners: of(Role::Learner)
            .chain(of(Role::Aggregator))
            .filter_map(url)
            .collect(),
    }
}

/// Lists the processes of an aggregator's ddp learners, as URLs in the order of their ranks; the same are left out as in [`listing`].
pub fn processes<'a>(
    job: &DIJob,
    aggregator: &str,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    now: Timestamp,
) -> Vec<String> {
    let mut all: Vec<_> = members(plan(job), aggregator)
        .filter_map(|entry| Some((usable(job, entry, &pod, now)?, entry)))
        .collect();
    all.sort_by_key(|(port, _)| *port);
    all.into_iter()
        .flat_map(|(port, entry)| (0..entry.gpus()).map(move |i| url(job, entry, port + i)))
        .collect()
}

fn plan(job: &DIJob) -> &[PlanEntry] {
    job.status
        .as_ref()
        .map_or(&[], |status| status.plan.as_slice())
}

fn url(job: &DIJob, entry: &PlanEntry, port: i32) -> String {
    names::url(&entry.name, &job.namespace().unwrap_or_default(), port)
}

/// The port of a replica that may be used.
fn usable<'a>(
    job: &DIJob,
    entry: &PlanEntry,
    pod: &impl Fn(&str) -> Option<&'a PodView>,
    now: Timestamp,
) -> Option<i32> {
    if !entry.is_wanted() {
        return None;
    }
    if let Some(pod) = pod(&entry.name) {
        let over = matches!(pod.stage(), Stage::Succeeded | Stage::Failed);
        let usable = !over && !pod.deleting && pod.stuck().is_none();
        return usable.then_some(pod.port);
    }
    // Not to be made yet, or made and gone since.
    if entry.uid.is_some() || entry.not_before.as_ref().is_some_and(|time| time.0 > now) {
        return None;
    }
    // Where an aggregator will listen is not known before its configuration is.
    if entry.role == Role::Aggregator && entry.port.is_none() {
        return None;
    }
    Some(port_of(job, entry))
}
