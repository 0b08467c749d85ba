//! Collectors and learners: the plan is brought up to date, then the pods and services to the plan.

use std::{collections::HashSet, time::Duration};

use di_api::{EntryState, PlanEntry, Reason, Role, names};
use di_plan::{
    LONGEST_BACKOFF_SECONDS, PodView, Room, Stage, Suffixes, adopt, aggregator_of, declare,
    drop_gone, find, follow, forgo_logs, members, replace, shorten,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{Action, NAMED, Note, Observed, Step, coordinator, listed, units};

pub(super) fn tend(seen: &Observed<'_>, step: &mut Step, suffixes: &mut dyn Suffixes) {
    let mut plan = std::mem::take(&mut step.status.plan);
    let strangers = strangers(seen, &plan, step);
    let coordinator = seen.pod(&names::coordinator(&seen.job.name_any()));
    let incarnation = coordinator.map(PodView::incarnation);
    adopt(seen.job, &mut plan, &strangers, incarnation, seen.now);
    tell_adopted(&plan, &strangers, step);
    follow(&mut plan);
    let torn = units::torn(seen, &plan);
    note_pods(seen, &mut plan, &torn, step);
    declare(seen.job, &mut plan, seen.pods, suffixes, seen.now);
    replace_lost(seen, &mut plan, step, suffixes);
    units::tend(seen, &mut plan, step, suffixes);
    shorten(&mut plan);
    let is_there = |name: &str| seen.pod(name).is_some() || seen.service(name).is_some();
    let leads = |name: &str| members(&plan, name).any(|member| is_there(&member.name));
    let leaving = plan
        .iter()
        .filter(|entry| !entry.is_wanted() && !is_there(&entry.name))
        .filter(|entry| entry.role != Role::Aggregator || !leads(&entry.name));
    let doubtful = leaving.filter(|entry| !seen.asked.contains_key(&entry.name));
    step.ask.extend(doubtful.map(|entry| entry.name.clone()));
    // A name is let go of only when its pod is known to be gone, else it would come back as a stranger.
    drop_gone(&mut plan, |name| {
        is_there(name) || seen.asked.get(name) != Some(&false)
    });
    let taken = taken(seen, &plan);
    let misled = coordinator::is_an_earlier_jobs(seen);
    let may_make = coordinator::has_room(seen, step);
    for entry in &plan {
        match entry.state {
            // They would find the other job's coordinator at the address of theirs.
            EntryState::Wanted if misled => {}
            EntryState::Wanted if taken.contains(units::leader(entry)) => {}
            EntryState::Wanted => want(seen, &plan, entry, may_make, step),
            EntryState::Removing => let_go(seen, entry, true, step),
            EntryState::Replaced => let_go(seen, entry, false, step),
        }
    }
    sweep_services(seen, &plan, step);
    step.status.plan = plan;
}

/// Services of the job that stand for nobody: their name was let go of by one that did not see them.
fn sweep_services(seen: &Observed<'_>, plan: &[PlanEntry], step: &mut Step) {
    let coordinator = names::coordinator(&seen.job.name_any());
    let planned = planned(plan);
    let strays = seen.own_services().filter(|service| {
        !service.deleting
            && service.name != coordinator
            && seen.pod(&service.name).is_none()
            && !planned.contains(service.name.as_str())
    });
    step.actions.extend(strays.map(Action::delete_service));
}

/// All names of a plan.
fn planned(plan: &[PlanEntry]) -> HashSet<&str> {
    plan.iter().map(|entry| entry.name.as_str()).collect()
}

/// Own pods without a place in the plan that the server has, too: a name that was let go of may linger in a cache.
fn strangers(seen: &Observed<'_>, plan: &[PlanEntry], step: &mut Step) -> Vec<PodView> {
    let coordinator = names::coordinator(&seen.job.name_any());
    let planned = planned(plan);
    let all = seen.own_pods().filter(|pod| {
        !pod.deleting && pod.name != coordinator && !planned.contains(pod.name.as_str())
    });
    let (known, unknown): (Vec<_>, Vec<_>) =
        all.partition(|pod| seen.asked.contains_key(&pod.name));
    step.ask
        .extend(unknown.into_iter().map(|pod| pod.name.clone()));
    let there = known.into_iter().filter(|pod| seen.asked[&pod.name]);
    there.cloned().collect()
}

/// Tells of those that were taken in, with one event for all.
fn tell_adopted(plan: &[PlanEntry], strangers: &[PodView], step: &mut Step) {
    if strangers.is_empty() {
        return;
    }
    let wanted = plan.iter().filter(|entry| entry.is_wanted());
    let wanted: HashSet<_> = wanted.map(|entry| entry.name.as_str()).collect();
    let is_wanted = |name: &&str| wanted.contains(name);
    let names = strangers.iter().map(|pod| pod.name.as_str());
    let names: Vec<_> = names.filter(is_wanted).collect();
    if !names.is_empty() {
        let message = format!("adopted {}: nobody had planned them", listed(&names));
        step.notes
            .push(Note::normal(Reason::ReplicaAdopted, message));
    }
}

/// Records which pod each name was made as, and tells whose place it takes where the endpoint swapped them: once, as the UID is new once. A pod
/// that goes is one from before the job was held, and its name is waited for; but what stays of a [torn](units::torn) unit has lost it.
fn note_pods(seen: &Observed<'_>, plan: &mut [PlanEntry], torn: &HashSet<String>, step: &mut Step) {
    let mut swapped = Vec::new();
    for entry in plan.iter_mut().filter(|entry| entry.uid.is_none()) {
        let pod = seen.pod(&entry.name);
        let pod = pod.filter(|pod| !pod.deleting || torn.contains(units::leader(entry)));
        entry.uid = pod.map(|pod| pod.uid.clone());
        let told = entry.uid.as_ref().filter(|_| entry.reported);
        if let Some(old) = told.and(entry.replaces.as_ref()) {
            let message = format!(
                "{old} was reported as failed; {} takes its place",
                entry.name
            );
            swapped.push((old.clone(), message));
        }
    }
    tell_replaced(step, swapped);
}

/// Tells of replicas that were replaced, of each by its message; of many at one time with one event, for so many would push others out.
fn tell_replaced(step: &mut Step, all: Vec<(String, String)>) {
    let messages: Vec<String> = if all.len() > NAMED {
        let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        vec![format!("{} are replaced: {}", listed(&names), all[0].1)]
    } else {
        all.into_iter().map(|(_, message)| message).collect()
    };
    let notes = messages.into_iter();
    let notes = notes.map(|message| Note::warning(Reason::ReplicaReplaced, message));
    step.notes.extend(notes);
}

/// Whether the very pod of a replica [has](PodView::has_done_its_work).
pub(super) fn has_done_its_work(seen: &Observed<'_>, entry: &PlanEntry) -> bool {
    own_pod(seen, entry).is_some_and(PodView::has_done_its_work)
}

/// The very pod that a replica was made as.
fn own_pod<'a>(seen: &'a Observed<'_>, entry: &PlanEntry) -> Option<&'a PodView> {
    let pod = seen.pod(&entry.name)?;
    (entry.uid.as_deref() == Some(&pod.uid)).then_some(pod)
}

/// Replicas that wait for the name of a pod that goes, by the leaders of their units.
fn taken<'a>(seen: &Observed<'_>, plan: &'a [PlanEntry]) -> HashSet<&'a str> {
    let waits = |entry: &&PlanEntry| entry.uid.is_none() && seen.pod(&entry.name).is_some();
    plan.iter().filter(waits).map(units::leader).collect()
}

/// Swaps replicas whose pod failed, was deleted, or is gone.
fn replace_lost(
    seen: &Observed<'_>,
    plan: &mut Vec<PlanEntry>,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) {
    for entry in plan.iter_mut().filter(|entry| entry.is_wanted()) {
        entry.done |= has_done_its_work(seen, entry);
    }
    let made = plan
        .iter()
        .filter(|entry| entry.is_wanted() && entry.uid.is_some() && !entry.done);
    let (known, missing): (Vec<_>, Vec<_>) = made
        .partition(|entry| seen.pod(&entry.name).is_some() || seen.asked.contains_key(&entry.name));
    step.ask
        .extend(missing.into_iter().map(|entry| entry.name.clone()));
    let lost: Vec<_> = known
        .into_iter()
        .filter_map(|entry| Some((entry.name.clone(), loss(seen, entry)?)))
        .chain(units::broken(plan))
        .collect();
    if lost.is_empty() {
        return;
    }
    let (mut room, mut replaced) = (Room::of(seen.job, plan), Vec::new());
    for (name, loss) in lost {
        // It may have been replaced with another of its unit.
        let Some(entry) = find(plan, &name).filter(|entry| entry.is_wanted()) else {
            continue;
        };
        let leader = units::lead(plan, entry);
        if !room.take(plan, leader) {
            // Some have to be gone first, which is seen.
            forgo_logs(plan);
            break;
        }
        let whose = match aggregator_of(entry) {
            Some(aggregator) => format!("the place of {aggregator} and its ddp learners"),
            None => "its place".to_owned(),
        };
        if let Some(fresh) = replace(seen.job, plan, &name, loss.ran, suffixes, seen.now) {
            let message = format!("{name} {}; {fresh} takes {whose}", loss.how);
            replaced.push((name, message));
        }
    }
    // Who takes a place is made as the job says now.
    declare(seen.job, plan, seen.pods, suffixes, seen.now);
    tell_replaced(step, replaced);
}

pub(super) struct Loss {
    pub how: String,
    pub ran: Option<i64>,
}

fn loss(seen: &Observed<'_>, entry: &PlanEntry) -> Option<Loss> {
    let most = entry
        .may_be_made_from()
        .map(|from| seen.now.duration_since(from).as_secs());
    let Some(pod) = own_pod(seen, entry) else {
        // Nobody knows more by now.
        return Some(Loss {
            how: "is gone".to_owned(),
            ran: most,
        });
    };
    let ran = pod.ran(seen.now, most);
    match (pod.stage(), &pod.end) {
        // Nobody else takes it away, or makes another.
        (Stage::Succeeded, _) if pod.disrupted && !pod.deleting => Some(Loss {
            how: "was told to go by its node, and ended with exit code 0".to_owned(),
            ran,
        }),
        (Stage::Succeeded, _) => None,
        (Stage::Failed, Some(end)) => Some(Loss {
            how: format!("failed: {end}"),
            ran,
        }),
        _ if pod.deleting => Some(Loss {
            how: "is being deleted".to_owned(),
            ran,
        }),
        _ => None,
    }
}

fn want(
    seen: &Observed<'_>,
    plan: &[PlanEntry],
    entry: &PlanEntry,
    may_make: bool,
    step: &mut Step,
) {
    if entry.done {
        return;
    }
    // A unit is made together.
    let leader = units::lead(plan, entry);
    if units::lacks_template(seen, leader) {
        return;
    }
    if let Some(wait) = wait(leader.not_before.as_ref(), seen.now) {
        step.look_within(wait);
        return;
    }
    if seen.service(&entry.name).is_none() {
        step.actions.push(Action::CreateService(entry.clone()));
    }
    if entry.uid.is_none() && may_make {
        step.actions.push(Action::CreatePod(entry.clone()));
    }
}

/// How long a pod is not made yet.
pub(super) fn wait(not_before: Option<&Time>, now: Timestamp) -> Option<Duration> {
    let wait = not_before?.0.duration_since(now);
    // A longer one was noted by a clock that is ahead of ours, and nobody can tell what is left of it.
    let ours = wait.is_positive() && wait.as_secs() <= LONGEST_BACKOFF_SECONDS;
    ours.then(|| wait.unsigned_abs())
}

/// The pod goes first, with its own grace, then its service. An ended pod goes only when `ended_too`, else it is kept for its logs.
fn let_go(seen: &Observed<'_>, entry: &PlanEntry, ended_too: bool, step: &mut Step) {
    let goes = |pod: &PodView| ended_too || pod.deleting || pod.uses_cluster();
    let pod = seen.pod(&entry.name);
    if let Some(pod) = pod.filter(|pod| goes(pod)) {
        if !pod.deleting {
            step.actions.push(Action::delete_pod(pod));
        }
    } else if let Some(service) = seen
        .service(&entry.name)
        .filter(|service| !service.deleting)
    {
        step.actions.push(Action::delete_service(service));
    }
}
