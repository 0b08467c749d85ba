//! One reconcile of a job: looks, and what follows from them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use di_api::{ConditionType, DIJob, DIJobStatus};
use di_cache::{Key, WatchedJob};
use di_plan::{PodView, RandomSuffixes};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, ResourceExt,
    runtime::{controller::Action as Next, reflector::ObjectRef},
};
use rand::RngExt;
use tracing::{debug, instrument};

use crate::{
    Action, Error, Note, Observed, Step, Trouble,
    act::{Failed, IN_PARALLEL, act, made_by},
    context::{Context, Refused},
    error::Result,
    raw,
    status::{
        COUNTS_EVERY, is_written, may_wait, on_what_stands, stands, tell_unsaid, write_and_tell,
    },
    step,
    step::has_begun,
};

/// A job is looked at this often even if nothing seems to change, in case a watch lost something.
const SAFETY_NET: Duration = Duration::from_secs(300);
/// Looks at a job in one reconcile: status, actions, status of what they did. More come by the watch.
const LOOKS: usize = 6;

/// Waits for the job's turn, and reconciles it as it is by then.
pub(crate) async fn reconcile(job: Arc<WatchedJob>, context: Arc<Context>) -> Result<Next> {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let _one_of_few = if context.backoff.hangs(&key) {
        // Never closed.
        context.turns_of_hanging.acquire().await.ok()
    } else {
        None
    };
    let Ok(_turn) = context.turns.acquire().await else {
        // All is to end.
        return Ok(Next::await_change());
    };
    let Some(job) = context.jobs.store().get(&ObjectRef::from_obj(&*job)) else {
        context.forget(&key);
        return Ok(Next::await_change());
    };
    // Boxed: those that wait are many, and take no room for it.
    Box::pin(reconcile_now(job, &context)).await
}

#[instrument(skip_all, fields(namespace = job.namespace(), job = job.name_any()))]
async fn reconcile_now(job: Arc<WatchedJob>, context: &Context) -> Result<Next> {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    context.meet(&key, job.uid().as_deref());
    if context.memory(&key).moot {
        return Ok(Next::await_change());
    }
    let _under_way = context.metrics.reconcile();
    let result: Result<_, Failed> = match &job.0 {
        Ok(_) => {
            synced(context).await?;
            looks(context, &key, job.uid().as_deref()).await
        }
        Err(invalid) => {
            synced(context).await?;
            match raw::fail_undecodable(context, invalid).await {
                Ok(Some(ended)) => clean_up(context, &key, &ended).await,
                told => told.map(|_| Next::await_change()).map_err(Failed::from),
            }
        }
    };
    match &result {
        // One whose write is held back has not been to the server.
        Ok(_) if context.memory(&key).has_settled() => context.backoff.succeeded(&key),
        Err(Failed { error, .. }) if error.is_moot() => {
            debug!(error = error.chain(), "Nothing more can be done");
            context.remember(&key, |memory| memory.moot = true);
            return Ok(Next::await_change());
        }
        Err(Failed { error, .. }) if error.is_conflict() => {}
        Err(failed) if job.0.is_ok() => note_trouble(context, &key, failed).await,
        _ => {}
    }
    result.map_err(|failed| failed.error)
}

/// No decision is made before the caches are filled.
async fn synced(context: &Context) -> Result<()> {
    for mut cache in [context.pods.synced(), context.services.synced()] {
        let filled = cache.wait_for(|synced| *synced).await;
        filled.map_err(|_| Error::WatchEnded)?;
    }
    Ok(())
}

/// Looks, decides, writes the status, acts; again until nothing is left to do for the job of this UID.
async fn looks(context: &Context, key: &Key, uid: Option<&str>) -> Result<Next, Failed> {
    Box::pin(tell_unsaid(context, key)).await?;
    let mut trouble = context.memory(key).trouble;
    let mut asked = HashMap::new();
    let (mut judged, mut got_on, mut in_vain) = (false, false, false);
    for _ in 0..LOOKS {
        let Some(job) = context.jobs.get(key) else {
            context.forget(key);
            return Ok(Next::await_change());
        };
        if job.metadata.uid.as_deref() != uid {
            // Another of its name by now, of which nothing of this holds.
            return Ok(Next::requeue(COUNTS_EVERY));
        }
        // Once in a job's life: afterwards it has begun. In here, since it may be let go on between two looks.
        if !judged && is_new(context, key, &job) {
            if Box::pin(raw::fail_invalid(context, key)).await? {
                return Ok(Next::await_change());
            }
            judged = true;
        }
        asked.extend(seen_going(context, &job).map(|name| (name, false)));
        let mut step = look(context, key, &job, trouble.as_ref(), &asked);
        if !step.ask.is_empty() {
            let (answers, failed) = ask_for(context, key, step.ask).await;
            // What was answered need not be asked again: of many calls to a server that is ill some always fail.
            if let Some(error) = failed.filter(|_| answers.is_empty()) {
                return Err(error.into());
            }
            asked.extend(answers);
            continue;
        }
        let some_wait = put_off(context, key, &job, &mut step);
        let old = job.status.as_ref();
        let acts_first = !step.actions.is_empty() && stands(old, &step.status);
        if !is_written(old, &step.status) && !acts_first {
            if let Some(wait) = may_wait(context, key, old, &step) {
                let actions = on_what_stands(old, &step.status, step.actions);
                act(context, &job, key, &actions).await?;
                return Ok(Next::requeue(wait));
            }
            write_and_tell(context, key, &job, step).await?;
            got_on = true;
            continue;
        }
        if step.actions.is_empty() && (trouble.is_none() || some_wait) {
            context.remember(key, |memory| memory.held = None);
            return Ok(next(&step, &job));
        }
        let changed = act(context, &job, key, &step.actions).await?;
        got_on |= changed;
        in_vain |= !changed;
        if step.actions.contains(&Action::DeleteJob) {
            // It is there until the watch has caught up.
            context.remember(key, |memory| memory.moot = true);
            return Ok(Next::await_change());
        }
        if !some_wait {
            trouble = None;
            context.remember(key, |memory| memory.trouble = None);
        }
    }
    if in_vain && !got_on {
        // What it waits for the watch brings, and if nothing does, it must not be tried at this pace for ever.
        return Err(Error::InVain.into());
    }
    // Something keeps changing; others get their turn in between.
    Ok(Next::requeue(COUNTS_EVERY))
}

/// An ended job that cannot be decoded is cleaned up after like any other. Its status stays as it is: to write it takes to read it.
async fn clean_up(context: &Context, key: &Key, ended: &DIJob) -> Result<Next, Failed> {
    let step = look(context, key, ended, None, &HashMap::new());
    act(context, ended, key, &step.actions).await?;
    Ok(next(&step, ended))
}

/// Takes what was refused out of a step until it is time to try it again; whether there is any.
fn put_off(context: &Context, key: &Key, job: &DIJob, step: &mut Step) -> bool {
    let refused = context.memory(key).refused;
    if refused.creates.is_empty() {
        return false;
    }
    let wait = context.backoff.left(key);
    let Some(wait) = wait.filter(|_| refused.generation == job.metadata.generation) else {
        context.remember(key, |memory| memory.refused = Arc::default());
        return false;
    };
    let all = step.actions.len();
    take_out(&mut step.actions, &refused.creates);
    let some_wait = step.actions.len() < all;
    if some_wait {
        step.look_within(wait);
    } else {
        // Nobody wants it any more.
        context.remember(key, |memory| memory.refused = Arc::default());
    }
    some_wait
}

/// Takes out what was refused, and the pods that might take the room of a coordinator that was.
fn take_out(actions: &mut Vec<Action>, refused: &HashSet<(&'static str, String)>) {
    let waits = |action: &Action| made_by(action).is_some_and(|made| refused.contains(&made));
    let is_held = actions
        .iter()
        .any(|action| action.makes_coordinator() && waits(action));
    let is_pod = |action: &Action| matches!(action, Action::CreatePod(_));
    actions.retain(|action| !(waits(action) || is_held && is_pod(action)));
}

/// Whether the job is to begin: it is not held, and neither its status nor, if that was lost, pods tell that it has.
fn is_new(context: &Context, key: &Key, job: &DIJob) -> bool {
    let status = job.status.as_ref();
    job.metadata.deletion_timestamp.is_none()
        && !job.spec.suspend
        && status.is_none_or(|status| !has_begun(status))
        && !context.has_pods(key, job.metadata.uid.as_deref())
}

/// Replicas whose pod the watch has shown going.
fn seen_going(context: &Context, job: &DIJob) -> impl Iterator<Item = String> {
    let plan = job.status.iter().flat_map(|status| &status.plan);
    plan.filter(|entry| {
        entry
            .uid
            .as_ref()
            .is_some_and(|uid| context.pods.saw_go(uid))
    })
    .map(|entry| entry.name.clone())
}

/// Asks the server for pods, and returns whether it has them, as far as it answered, and why it did not.
async fn ask_for(
    context: &Context,
    key: &Key,
    names: Vec<String>,
) -> (Vec<(String, bool)>, Option<Error>) {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let calls = names.into_iter().map(|name| {
        let api = api.clone();
        async move {
            let what = || format!("get pods {name}");
            let found = context.get("pods", what, api.get_opt(&name)).await?;
            let view = found.as_ref().and_then(PodView::new);
            let there = view.is_some();
            if let Some(view) = view {
                context.pods.created(view);
            }
            Ok((name, there))
        }
        .boxed()
    });
    let calls: Vec<BoxFuture<'_, Result<_>>> = calls.collect();
    let results: Vec<_> = stream::iter(calls)
        .buffer_unordered(IN_PARALLEL)
        .collect()
        .await;
    let (mut answers, mut failed) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(answer) => answers.push(answer),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    (answers, failed)
}

fn look(
    context: &Context,
    key: &Key,
    job: &DIJob,
    trouble: Option<&Trouble>,
    asked: &HashMap<String, bool>,
) -> Step {
    let pods = context.pods.of_job(key);
    let services = context.services.of_job(key);
    let nodes = context.nodes.all();
    let aggregator = context.aggregators.of(&key.0);
    let now = (context.settings.clock)();
    let coordinator = job.status.as_ref().map(|status| &status.coordinator);
    let coordinator = coordinator.and_then(|last| last.uid.as_deref());
    let gone = coordinator.and_then(|uid| context.pods.last_of(uid));
    let seen = Observed {
        job,
        pods: &pods,
        services: &services,
        nodes: nodes.as_deref(),
        aggregator: &aggregator,
        trouble,
        gone: gone.as_ref(),
        asked,
        // Kubernetes' times are whole seconds.
        now: Timestamp::from_second(now.as_second()).unwrap_or(now),
    };
    step(&seen, &mut RandomSuffixes)
}

fn next(step: &Step, job: &DIJob) -> Next {
    let ended = job.status.as_ref().is_some_and(DIJobStatus::has_ended);
    let look = SAFETY_NET.mul_f64(rand::rng().random_range(0.8..1.2));
    match step.again {
        Some(again) if ended => Next::requeue(again),
        None if ended => Next::await_change(),
        again => Next::requeue(again.map_or(look, |again| again.min(look))),
    }
}

/// A step that changes nothing but what is said of the job.
pub(crate) fn only_told(step: Step, job: &DIJob) -> Step {
    let DIJobStatus {
        reason, conditions, ..
    } = step.status;
    let told = |condition: &Condition| condition.type_ == ConditionType::ReplicasReady.as_str();
    let mut status = job.status.clone().unwrap_or_default();
    status.reason = reason;
    status.conditions.retain(|condition| !told(condition));
    status
        .conditions
        .extend(conditions.into_iter().filter(told));
    Step {
        status,
        ..Step::default()
    }
}

/// What is told goes on being told while what it is about is refused: of many, others are tried each time. Once that is made, or free, another is
/// to be told of.
fn told_on(told: Option<Trouble>, new: Trouble, refused: &Refused) -> Trouble {
    let goes_on = |old: &Trouble| {
        let about = old.about.as_ref();
        let is_refused = about.is_some_and(|about| refused.creates.contains(about));
        is_refused && old.about != new.about && old.reason == new.reason
    };
    told.filter(goes_on).unwrap_or(new)
}

/// Keeps what went wrong for the status and tells of it.
async fn note_trouble(context: &Context, key: &Key, failed: &Failed) {
    let error = &failed.error;
    let trouble = Trouble {
        reason: error.reason(),
        message: error.chain(),
        about: failed.made.clone(),
    };
    let memory = context.memory(key);
    let trouble = told_on(memory.trouble, trouble, &memory.refused);
    let resource = trouble.about.as_ref().map(|(resource, _)| *resource);
    let note = Note {
        warning: !error.is_passing(),
        retried: resource.or(Some("dijobs")),
        ..Note::normal(trouble.reason, trouble.message.clone())
    };
    context.remember(key, |memory| memory.trouble = Some(trouble));
    let Some(job) = context.jobs.get(key) else {
        return;
    };
    context.publish(&job, &note);
    let memory = context.memory(key);
    if memory.unsaid.is_some() {
        // Another status would hide whether that one stands.
        return;
    }
    let trouble = memory.trouble;
    let mut step = look(context, key, &job, trouble.as_ref(), &HashMap::new());
    // Nothing may follow from a look that has yet to be answered, least of all new names in the plan; nor from a job whose mistakes could not be
    // looked for: once it has begun nobody would.
    if !step.ask.is_empty() || is_new(context, key, &job) {
        step = only_told(step, &job);
    }
    if !is_written(job.status.as_ref(), &step.status)
        && let Err(error) = write_and_tell(context, key, &job, step).await
    {
        debug!(
            error = error.chain(),
            "Status does not tell of the error yet"
        );
    }
}

#[cfg(test)]
mod tests;
