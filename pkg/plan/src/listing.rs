use di_api::{DIJob, PlanEntry, Role, names};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    build::port,
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

/// Lists a job's replicas: those that the plan wants, but for those that ended, are being deleted, or that Kubernetes says cannot start.
///
/// `pod` looks a pod up by name. A replica whose pod nobody has seen yet is listed: it is on its way.
pub fn listing<'a>(
    job: &DIJob,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    now: Timestamp,
) -> Listing {
    let plan = job
        .status
        .as_ref()
        .map_or(&[][..], |status| status.plan.as_slice());
    let url = |entry: &PlanEntry| usable(job, entry, &pod, now);
    let of = |role: Role| plan.iter().filter(move |entry| entry.role == role);
    Listing {
        collectors: of(Role::Collector).filter_map(url).collect(),
        learners: of(Role::Learner)
            .chain(of(Role::Aggregator))
            .filter_map(url)
            .collect(),
    }
}

fn usable<'a>(
    job: &DIJob,
    entry: &PlanEntry,
    pod: &impl Fn(&str) -> Option<&'a PodView>,
    now: Timestamp,
) -> Option<String> {
    if !entry.is_wanted() {
        return None;
    }
    let port = if let Some(pod) = pod(&entry.name) {
        let over = matches!(pod.stage(), Stage::Succeeded | Stage::Failed);
        if over || pod.deleting || pod.stuck().is_some() {
            return None;
        }
        pod.port
    } else {
        // Not to be made yet, or made and gone since.
        if entry.uid.is_some() || entry.not_before.as_ref().is_some_and(|time| time.0 > now) {
            return None;
        }
        port(job, entry.role)
    };
    Some(names::url(
        &entry.name,
        &job.namespace().unwrap_or_default(),
        port,
    ))
}
