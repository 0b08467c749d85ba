//! The step: a pure function from the observed cluster to the desired status, the actions and the
//! events of a job. It does no IO.
//!
//! | Job | Rules |
//! |---|---|
//! | being deleted | none, the garbage collector deletes its objects |
//! | invalid, without pods | [`ending`]: fails |
//! | coordinator has ended | [`coordinator`]: the job ends, or the coordinator restarts |
//! | suspended | [`ending`]: deletes pods and services, keeps the plan |
//! | past its deadline | [`ending`]: fails |
//! | in a queue, not admitted | [`queueing`]: waits without pods |
//! | with a gang | [`gang`]: the first pods start together, the others after them |
//! | a failure rule fails the job | [`failures`] |
//! | active | [`coordinator`], then [`replicas`] and [`learner_groups`] |
//! | ended | [`ending`]: cleans up, deletes the job after its TTL |
//!
//! In all cases but the first, [`membership`], [`counts`] and [`conditions`] then complete the
//! status.

mod conditions;
mod coordinator;
mod counts;
mod ending;
mod failures;
mod gang;
mod learner_groups;
mod loss;
mod membership;
mod observed;
mod outcome;
mod phase;
mod planning;
mod queueing;
mod replicas;
mod reported;
mod units;

use di_api::{Phase, Reason, validation};
use di_plan::Suffixes;

pub(crate) use self::{
    failures::waiting_reason,
    observed::{Observed, ObservedGang, ObservedQueue, ReconcileError},
    outcome::{Action, EventRecord, Step, join_names},
    phase::has_started,
    queueing::waits_for_admission,
};

/// Computes the desired status of a job, and the actions and events that follow.
pub(crate) fn step(observed: &Observed, suffixes: &mut dyn Suffixes) -> Step {
    let mut step = Step {
        status: observed.job.status.clone().unwrap_or_default(),
        ..Step::default()
    };
    if observed.job.metadata.deletion_timestamp.is_some() {
        // The garbage collector deletes the objects that the job owns.
        return step;
    }
    if !step.status.has_ended() {
        step_active(observed, &mut step, suffixes);
    }
    if step.status.has_ended() {
        ending::clean_up(observed, &mut step);
        queueing::finish(observed, &mut step);
        gang::delete_groups(observed, &mut step);
    }
    queueing::drop_unusable_actions(observed, &mut step);
    step.actions.extend(delete_unlabeled(observed));
    failures::requeue_for_waiting(observed, &mut step);
    membership::record_membership(observed, &mut step.status);
    counts::set_counts(observed, &mut step.status);
    conditions::set_conditions(observed, &mut step.status);
    step
}

/// Returns the deletions of pods that have lost the label of the job. New pods replace them.
fn delete_unlabeled(observed: &Observed) -> impl Iterator<Item = Action> {
    let pods = observed.unlabeled_pods.iter();
    pods.map(|(name, uid)| Action::DeletePod {
        name: name.clone(),
        uid: uid.clone(),
    })
}

fn step_active(observed: &Observed, step: &mut Step, suffixes: &mut dyn Suffixes) {
    // A job with pods is running: its pods are worth more than the mistake. A suspended job can be
    // fixed until it is resumed.
    let may_start = step.status.start_time.is_none() && !observed.job.spec.suspend;
    if may_start && observed.own_pods().next().is_none() {
        let faults = validation::dijob_faults(&observed.job);
        if !faults.is_empty() {
            let message = validation::summarize_faults(&faults);
            phase::finish_job(observed, step, Phase::Failed, Reason::InvalidSpec, &message);
            return;
        }
    }
    // First, so that a finished job never restarts: it may be suspended or late by now.
    coordinator::check_end(observed, step);
    if step.status.has_ended() {
        return;
    }
    if observed.job.spec.suspend {
        ending::suspend_job(observed, step);
        queueing::leave_while_suspended(observed, step);
        gang::delete_groups(observed, step);
        return;
    }
    ending::check_deadline(observed, step);
    if step.status.has_ended() {
        return;
    }
    let may_run = queueing::reconcile_admission(observed, step, suffixes);
    if step.status.has_ended() {
        return;
    }
    if !may_run {
        gang::delete_groups(observed, step);
        return;
    }
    coordinator::reconcile_coordinator(observed, step);
    if !step.status.has_ended() {
        replicas::reconcile_replicas(observed, step, suffixes);
    }
}

#[cfg(test)]
mod tests;
