//! The pure step: from what is there to what is to be done.

mod conditions;
mod coordinator;
mod counts;
mod ending;
mod replicas;
mod units;

use std::{collections::HashMap, time::Duration};

use di_api::{
    ConditionType, DIJob, DIJobStatus, Phase, PlanEntry, Reason, Role, condition, set_condition,
    validation,
};
use di_plan::{AggregatorTemplate, NodeView, PodView, ServiceView, Suffixes};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What is there.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The job.
    pub job: &'a DIJob,
    /// Pods that carry its labels, other jobs' among them, sorted by name.
    pub pods: &'a [PodView],
    /// Services that carry its labels, other jobs' among them, sorted by name.
    pub services: &'a [ServiceView],
    /// Nodes that have GPUs; nothing while they are not known.
    pub nodes: Option<&'a [NodeView]>,
    /// The pod of aggregators in its namespace.
    pub aggregator: &'a AggregatorTemplate,
    /// What went wrong in the last act, if it was not mended since.
    pub trouble: Option<&'a Trouble>,
    /// The coordinator that the status tells of as the watch showed it last, if it had ended before it went.
    pub gone: Option<&'a PodView>,
    /// Pods that the server was asked for, and whether it has them: a cache alone may be behind.
    pub asked: &'a HashMap<String, bool>,
    /// The time.
    pub now: Timestamp,
}

/// What went wrong in the last act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word.
    pub reason: Reason,
    /// What a user must know.
    pub message: String,
    /// Resource and name of what could not be made, and is put off for a while.
    pub about: Option<(&'static str, String)>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the pod of this replica.
    CreatePod(PlanEntry),
    /// Make the service of this replica.
    CreateService(PlanEntry),
    /// Delete the pod of this name and UID, with its own grace.
    DeletePod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Have the kubelet end the pod of this name and UID, which stays for its logs.
    EndPod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Delete the service of this name and UID.
    DeleteService {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Delete the job itself, whose time after its end is over.
    DeleteJob,
}

impl Action {
    /// Whether it makes the coordinator.
    pub(crate) fn makes_coordinator(&self) -> bool {
        matches!(self, Self::CreatePod(entry) if entry.role == Role::Coordinator)
    }

    fn delete_pod(pod: &PodView) -> Self {
        Self::DeletePod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }

    fn end_pod(pod: &PodView) -> Self {
        Self::EndPod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }

    fn delete_service(service: &ServiceView) -> Self {
        Self::DeleteService {
            name: service.name.clone(),
            uid: service.uid.clone(),
        }
    }
}

/// Something that happened, for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a warning.
    pub warning: bool,
    /// One word.
    pub reason: Reason,
    /// A sentence: events of one reason that say the same are counted together.
    pub message: String,
    /// Resource of what is tried again and again, if it may come in other words each time, and is counted under the first.
    pub retried: Option<&'static str>,
}

impl Note {
    /// Something that is as it should be.
    pub fn normal(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            message: message.into(),
            retried: None,
        }
    }

    /// Something that a user should look at.
    pub fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, message)
        }
    }
}

/// How many names an event has; others are counted.
const NAMED: usize = 5;

/// Names, for an event.
pub(crate) fn listed(names: &[&str]) -> String {
    match names.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

/// What is to be done: the status is written first, the actions follow once it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The status as it should be.
    pub status: DIJobStatus,
    /// The writes that the status calls for.
    pub actions: Vec<Action>,
    /// What happened since the status was last written.
    pub notes: Vec<Note>,
    /// When to look again even if nothing changes.
    pub again: Option<Duration>,
    /// Pods that the server must be asked for before more is decided: the cache and the plan do not agree on them.
    pub ask: Vec<String>,
}

impl Step {
    pub(crate) fn look_within(&mut self, time: Duration) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}

impl Observed<'_> {
    fn uid(&self) -> &str {
        self.job.metadata.uid.as_deref().unwrap_or_default()
    }

    fn own_pods(&self) -> impl Iterator<Item = &PodView> {
        self.pods.iter().filter(|pod| pod.belongs_to(self.uid()))
    }

    fn own_services(&self) -> impl Iterator<Item = &ServiceView> {
        let uid = self.uid();
        self.services
            .iter()
            .filter(move |service| service.owner.as_deref() == Some(uid))
    }

    fn pod(&self, name: &str) -> Option<&PodView> {
        self.any_pod(name).filter(|pod| pod.belongs_to(self.uid()))
    }

    /// Whosever it is.
    fn any_pod(&self, name: &str) -> Option<&PodView> {
        let by_name = |pod: &PodView| pod.name.as_str().cmp(name);
        self.pods.get(self.pods.binary_search_by(by_name).ok()?)
    }

    fn service(&self, name: &str) -> Option<&ServiceView> {
        let by_name = |service: &ServiceView| service.name.as_str().cmp(name);
        let service = self
            .services
            .get(self.services.binary_search_by(by_name).ok()?)?;
        (service.owner.as_deref() == Some(self.uid())).then_some(service)
    }

    fn set_condition(
        &self,
        status: &mut DIJobStatus,
        type_: ConditionType,
        holds: bool,
        reason: Reason,
        message: &str,
    ) {
        set_condition(
            &mut status.conditions,
            type_,
            holds,
            reason,
            message,
            self.job.metadata.generation,
            &Time(self.now),
        );
    }
}

/// Whether anything of the job was planned or made. One that was held from the start has a phase and no more.
pub(crate) fn has_begun(status: &DIJobStatus) -> bool {
    let has_phase = status.phase.is_some_and(|phase| phase != Phase::Suspended);
    let was_made = condition(&status.conditions, ConditionType::Created).is_some();
    has_phase || was_made || !status.plan.is_empty()
}

/// Decides what is to be done for a job.
pub fn step(seen: &Observed<'_>, suffixes: &mut dyn Suffixes) -> Step {
    let mut step = Step {
        status: seen.job.status.clone().unwrap_or_default(),
        ..Step::default()
    };
    if seen.job.metadata.deletion_timestamp.is_some() {
        // The garbage collector takes what the job owns.
        return step;
    }
    if !step.status.has_ended() {
        live(seen, &mut step, suffixes);
    }
    if step.status.has_ended() {
        ending::clean_up(seen, &mut step);
    }
    counts::fill(seen, &mut step.status);
    conditions::fill(seen, &mut step.status);
    step
}

fn live(seen: &Observed<'_>, step: &mut Step, suffixes: &mut dyn Suffixes) {
    // One that has pods runs already: they are worth more than the mistake. One that is held can be mended until it goes on.
    let may_begin = step.status.start_time.is_none() && !seen.job.spec.suspend;
    if may_begin && seen.own_pods().next().is_none() {
        let faults = validation::dijob_faults(seen.job);
        if !faults.is_empty() {
            let message = validation::summary(&faults);
            ending::end(seen, step, Phase::Failed, Reason::InvalidSpec, &message);
            return;
        }
    }
    coordinator::check_end(seen, step);
    if step.status.has_ended() {
        return;
    }
    if seen.job.spec.suspend {
        ending::suspend(seen, step);
        return;
    }
    ending::check_deadline(seen, step);
    if !step.status.has_ended() {
        coordinator::tend(seen, step);
    }
    if !step.status.has_ended() {
        replicas::tend(seen, step, suffixes);
    }
}

#[cfg(test)]
mod tests;
