//! Collectors and learners: the plan is brought up to date, then the pods and services to the plan.

use std::time::Duration;

use di_api::{EntryState, PlanEntry};
use di_plan::{PodView, Stage, Suffixes, adopt, declare, drop_gone, replace};
use jiff::Timestamp;

use super::{Action, Note, Observed, Step};

pub(super) fn tend(seen: &Observed<'_>, step: &mut Step, suffixes: &mut dyn Suffixes) {
    let mut plan = std::mem::take(&mut step.status.plan);
    adopt(seen.job, &mut plan, seen.pods, seen.now);
    note_pods(seen, &mut plan);
    declare(seen.job, &mut plan, seen.pods, suffixes, seen.now);
    replace_lost(seen, &mut plan, step, suffixes);
    drop_gone(&mut plan, |name| {
        seen.pod(name).is_some() || seen.service(name).is_some()
    });
    for entry in &plan {
        match entry.state {
            EntryState::Wanted => want(seen, entry, step),
            EntryState::Removing => let_go(seen, entry, true, step),
            EntryState::Replaced => let_go(seen, entry, false, step),
        }
    }
    step.status.plan = plan;
}

/// Records which pod each name was made as.
fn note_pods(seen: &Observed<'_>, plan: &mut [PlanEntry]) {
    for entry in plan.iter_mut().filter(|entry| entry.uid.is_none()) {
        entry.uid = seen.pod(&entry.name).map(|pod| pod.uid.clone());
    }
}

/// Swaps replicas whose pod failed, was deleted, or is gone.
fn replace_lost(
    seen: &Observed<'_>,
    plan: &mut Vec<PlanEntry>,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) {
    let made = plan
        .iter()
        .filter(|entry| entry.is_wanted() && entry.uid.is_some());
    let (known, missing): (Vec<_>, Vec<_>) =
        made.partition(|entry| seen.pod(&entry.name).is_some() || seen.gone.contains(&entry.name));
    step.missing
        .extend(missing.into_iter().map(|entry| entry.name.clone()));
    let lost: Vec<_> = known
        .into_iter()
        .filter_map(|entry| Some((entry.name.clone(), loss(seen, entry)?)))
        .collect();
    for (name, loss) in lost {
        if let Some(fresh) = replace(seen.job, plan, &name, loss.ran, suffixes, seen.now) {
            let message = format!("{name} {}; {fresh} takes its place", loss.how);
            step.notes
                .push(Note::warning("ReplicaReplaced", message).about(&name));
        }
    }
}

struct Loss {
    how: String,
    ran: Option<i64>,
}

fn loss(seen: &Observed<'_>, entry: &PlanEntry) -> Option<Loss> {
    let pod = seen
        .pod(&entry.name)
        .filter(|pod| entry.uid.as_deref() == Some(&pod.uid));
    let Some(pod) = pod else {
        return Some(Loss {
            how: "is gone".to_owned(),
            ran: None,
        });
    };
    let ended = pod.end.as_ref();
    let ran = pod.started.map(|started| {
        let until = ended.and_then(|end| end.at).unwrap_or(seen.now);
        until.duration_since(started).as_secs()
    });
    match (pod.stage(), ended) {
        (Stage::Succeeded, _) => None,
        (Stage::Failed, Some(end)) => Some(Loss {
            how: match end.exit_code {
                Some(code) => format!("failed: {} (exit code {code})", end.reason),
                None => format!("failed: {}", end.reason),
            },
            ran,
        }),
        _ if pod.deleting => Some(Loss {
            how: "is being deleted".to_owned(),
            ran,
        }),
        _ => None,
    }
}

fn want(seen: &Observed<'_>, entry: &PlanEntry, step: &mut Step) {
    if let Some(wait) = wait(entry, seen.now) {
        step.again = Some(step.again.map_or(wait, |again| again.min(wait)));
        return;
    }
    if seen.service(&entry.name).is_none() {
        step.actions.push(Action::CreateService(entry.clone()));
    }
    if entry.uid.is_none() {
        step.actions.push(Action::CreatePod(entry.clone()));
    }
}

fn wait(entry: &PlanEntry, now: Timestamp) -> Option<Duration> {
    let wait = entry.not_before.as_ref()?.0.duration_since(now);
    (wait.is_positive()).then(|| wait.unsigned_abs())
}

/// The pod goes first, with its own grace, then its service. An ended pod goes only when `ended_too`, else it is kept for its logs.
fn let_go(seen: &Observed<'_>, entry: &PlanEntry, ended_too: bool, step: &mut Step) {
    let goes = |pod: &PodView| ended_too || pod.uses_cluster();
    let pod = seen.pod(&entry.name);
    if let Some(pod) = pod.filter(|pod| goes(pod)) {
        if !pod.deleting {
            step.actions.push(Action::DeletePod {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            });
        }
    } else if let Some(service) = seen
        .service(&entry.name)
        .filter(|service| !service.deleting)
    {
        step.actions.push(Action::DeleteService {
            name: service.name.clone(),
            uid: service.uid.clone(),
        });
    }
}
