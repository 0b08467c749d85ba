//! Carries out the actions of a step.

mod spared;
mod wanted;

use std::sync::{Arc, Mutex, PoisonError};

use di_api::{DIJob, PlanEntry, Reason};
use di_cache::Key;
use di_plan::{END_NOW, PodView, ServiceView, pod, service};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::{PartialObjectMeta, Status},
};
use serde_json::json;

use crate::{Action, Error, Note, context::Context, error::Result, step::listed};
use spared::Tried;
use wanted::is_still_wanted;

/// Why not all was carried out.
#[derive(Debug)]
pub(crate) struct Failed {
    pub error: Error,
    /// Resource and name of what could not be made, if it is [put off](crate::context::Refused).
    pub made: Option<(&'static str, String)>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, made: None }
    }
}

/// How many calls for one job are under way at the same time.
pub(crate) const IN_PARALLEL: usize = 16;

/// Carries out all actions, and returns the worst error once all were tried, else whether anything was changed: one that fails holds up no
/// other. But where some are tried in vain, others like them [are spared](Tried::spares).
pub(crate) async fn act(
    context: &Context,
    job: &DIJob,
    key: &Key,
    actions: &[Action],
) -> Result<bool, Failed> {
    // A pod takes its time to start, and nobody needs its address before.
    let (services, first): (Vec<_>, Vec<_>) = actions
        .iter()
        .partition(|action| matches!(action, Action::CreateService(_)));
    // Without its coordinator no other pod is of use: where a quota has room for one, that is it.
    let (coordinator, first): (Vec<_>, Vec<_>) = first
        .into_iter()
        .partition(|action| action.makes_coordinator());
    let at_once = if context.backoff.hangs(key) {
        1
    } else {
        IN_PARALLEL
    };
    let tried = Mutex::default();
    let mut results = Vec::with_capacity(actions.len());
    for part in [coordinator, [first, services].concat()] {
        // What kept the coordinator from being made passes, but it might find no room any more once others were made.
        let is_held = results.iter().any(|(_, result)| match result {
            Some(Err(error)) => Error::is_passing(error),
            _ => false,
        });
        let part = part.into_iter();
        let part = part.filter(|action| !is_held || !matches!(action, Action::CreatePod(_)));
        // Boxed, because the compiler does not see that futures made by a closure over borrows are Send.
        let writes: Vec<BoxFuture<'_, _>> = part
            .map(|action| {
                let result = attempt(context, job, key, action, &tried);
                async move { (action, result.await) }.boxed()
            })
            .collect();
        let writes = stream::iter(writes).buffer_unordered(at_once);
        results.extend(writes.collect::<Vec<_>>().await);
    }
    let changed = |(_, result): &(_, Option<Result<bool>>)| matches!(result, Some(Ok(true)));
    let got_on = results.iter().any(changed);
    if got_on {
        context.backoff.got_on(key);
    }
    let (mut created, mut deleted) = (Vec::new(), Vec::new());
    let (mut errors, mut refused) = (Vec::new(), Vec::new());
    for (action, result) in results {
        match (action, result) {
            (Action::CreatePod(entry), Some(Ok(true))) => {
                created.push((entry.role, entry.name.as_str()));
            }
            (Action::DeletePod { name, .. }, Some(Ok(true))) => deleted.push(name.as_str()),
            (_, Some(Err(error))) => {
                let made = made_by(action).filter(|_| !error.is_passing());
                refused.extend(made.clone());
                errors.push(Failed { error, made });
            }
            (_, None) => refused.extend(made_by(action)),
            _ => {}
        }
    }
    // The coordinator first, then role by role.
    created.sort_unstable();
    let created: Vec<_> = created.into_iter().map(|(_, name)| name).collect();
    deleted.sort_unstable();
    for (reason, what, names) in [
        (Reason::SuccessfulCreate, "created", created),
        (Reason::SuccessfulDelete, "deleted", deleted),
    ] {
        if !names.is_empty() {
            let note = Note::normal(reason, format!("{what} {}", listed(&names)));
            context.publish(job, &note);
        }
    }
    if !refused.is_empty() {
        context.remember(key, |memory| {
            let known = Arc::make_mut(&mut memory.refused);
            known.generation = job.metadata.generation;
            known.creates.extend(refused);
        });
    }
    let told = job.status.as_ref().and_then(|s| s.reason.as_deref());
    let about = context.memory(key).trouble.and_then(|told| told.about);
    worst(errors, told, about.as_ref()).map_or(Ok(got_on), Err)
}

/// Of what went wrong, what the job is told of: the same as before while it lasts, for every change of it is a write, and the next try.
fn worst(
    errors: Vec<Failed>,
    told: Option<&str>,
    about: Option<&(&'static str, String)>,
) -> Option<Failed> {
    errors.into_iter().min_by_key(|Failed { error, made }| {
        let reason = error.reason();
        let rank = Error::REASONS.iter().position(|other| *other == reason);
        let is_other = made.as_ref() != about;
        (
            !error.is_moot(),
            told != Some(reason.as_str()),
            rank,
            is_other,
        )
    })
}

/// Resource and name of what an action makes.
pub(crate) fn made_by(action: &Action) -> Option<(&'static str, String)> {
    match action {
        Action::CreatePod(entry) => Some(("pods", entry.name.clone())),
        Action::CreateService(entry) => Some(("services", entry.name.clone())),
        _ => None,
    }
}

/// Carries out an action, unless those like it are tried in vain.
async fn attempt<'a>(
    context: &Context,
    job: &DIJob,
    key: &Key,
    action: &'a Action,
    tried: &Mutex<Tried<'a>>,
) -> Option<Result<bool>> {
    let now = context.jobs.get(key);
    if !is_still_wanted(action, job, now.as_deref()) {
        return Some(Ok(false));
    }
    let tried = || tried.lock().unwrap_or_else(PoisonError::into_inner);
    if tried().spares(action) {
        return None;
    }
    let result = carry_out(context, job, key, action).await;
    tried().note(action, &result);
    Some(result)
}

/// Returns whether something was changed that had not been before.
async fn carry_out(context: &Context, job: &DIJob, key: &Key, action: &Action) -> Result<bool> {
    match action {
        Action::CreatePod(entry) => create_pod(context, job, key, entry).await,
        Action::CreateService(entry) => create_service(context, job, key, entry).await,
        Action::DeletePod { name, uid } => {
            let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
            let gone = delete(context, &api, "pods", name, uid).await?;
            context.pods.deletion_requested(key, name, uid);
            Ok(gone)
        }
        Action::EndPod { name, uid } => end_pod(context, key, name, uid).await,
        Action::DeleteService { name, uid } => {
            let api: Api<Service> = Api::namespaced(context.client.clone(), &key.0);
            let gone = delete(context, &api, "services", name, uid).await?;
            context.services.deletion_requested(key, name, uid);
            Ok(gone)
        }
        Action::DeleteJob => {
            // The answer may be a job that cannot be decoded.
            let api: Api<PartialObjectMeta<DIJob>> =
                Api::namespaced(context.client.clone(), &key.0);
            let uid = job.uid().unwrap_or_default();
            delete(context, &api, "dijobs", &job.name_any(), &uid).await
        }
    }
}

async fn create_pod(context: &Context, job: &DIJob, key: &Key, entry: &PlanEntry) -> Result<bool> {
    let aggregator = context.aggregators.of(&key.0);
    let Some(pod) = pod(job, entry, aggregator.found(), &context.settings.build) else {
        // The role was taken out of the spec, or the AggregatorConfig deleted; the next look will tell.
        return Ok(false);
    };
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let Some((pod, new)) = create(context, &api, "pods", &pod).await? else {
        let name = entry.name.clone();
        return Err(Error::Leftover { kind: "pod", name });
    };
    match PodView::new(&pod).filter(|view| view.owner == job.uid()) {
        Some(view) => {
            let is_known = context.pods.created(view);
            if !is_known && !new {
                // The watch has shown it going, and it is there: its labels were taken away, by which it is known.
                let name = entry.name.clone();
                return Err(Error::Leftover { kind: "pod", name });
            }
            Ok(new)
        }
        None => Err(taken("pod", &pod, job)),
    }
}

async fn create_service(
    context: &Context,
    job: &DIJob,
    key: &Key,
    entry: &PlanEntry,
) -> Result<bool> {
    let api: Api<Service> = Api::namespaced(context.client.clone(), &key.0);
    let service = service(job, entry);
    let Some((service, new)) = create(context, &api, "services", &service).await? else {
        let (kind, name) = ("service", entry.name.clone());
        return Err(Error::Leftover { kind, name });
    };
    match ServiceView::new(&service).filter(|view| view.owner == job.uid()) {
        Some(view) => {
            let is_known = context.services.created(view);
            if !is_known && !new {
                // As with a pod: the watch has shown it going, and it is there.
                let (kind, name) = ("service", entry.name.clone());
                return Err(Error::Leftover { kind, name });
            }
            Ok(new)
        }
        None => Err(taken("service", &service, job)),
    }
}

/// Why a name is not to be had: what an earlier job of the same name leaves goes by itself.
fn taken<K: kube::Resource>(kind: &'static str, object: &K, job: &DIJob) -> Error {
    let name = object.name_any();
    let mut owners = object.owner_references().iter();
    let leftover = object.meta().deletion_timestamp.is_some()
        || owners.any(|owner| owner.kind == "DIJob" && owner.name == job.name_any());
    if leftover {
        Error::Leftover { kind, name }
    } else {
        Error::Foreign { kind, name }
    }
}

/// How often a name is tried that somebody else has at one moment and not at the next.
const TRIES: usize = 3;

/// Creates an object whose name is its identity: one that is there already is as good, if it is ours. Nothing when it was there each time, and
/// gone by the time that it was looked at.
async fn create<K>(
    context: &Context,
    api: &Api<K>,
    resource: &'static str,
    object: &K,
) -> Result<Option<(K, bool)>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let name = object.name_any();
    let params = PostParams::default();
    for _ in 0..TRIES {
        let what = || format!("create {resource} {name}");
        let call = api.create(&params, object);
        match context.write("create", resource, what, call).await {
            Ok(created) => return Ok(Some((created, true))),
            Err(error) if error.answer().is_some_and(Status::is_already_exists) => {}
            Err(error) => return Err(error),
        }
        let what = || format!("get {resource} {name}");
        let call = api.get_opt(&name);
        if let Some(found) = context.write("get", resource, what, call).await? {
            return Ok(Some((found, false)));
        }
    }
    Ok(None)
}

/// An UID that is another one's by now is refused, for none ever changes.
async fn end_pod(context: &Context, key: &Key, name: &str, uid: &str) -> Result<bool> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let patch = json!({"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": END_NOW}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let what = || format!("patch pods {name}");
    let call = api.patch(name, &params, &patch);
    match context.write("patch", "pods", what, call).await {
        Ok(_) => {
            context.pods.end_requested(key, name, uid);
            Ok(true)
        }
        Err(error) if error.answer().is_some_and(Status::is_not_found) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn delete<K>(
    context: &Context,
    api: &Api<K>,
    resource: &'static str,
    name: &str,
    uid: &str,
) -> Result<bool>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let what = || format!("delete {resource} {name}");
    let call = api.delete(name, &params);
    let Err(refused) = context.write("delete", resource, what, call).await else {
        return Ok(true);
    };
    match refused.answer() {
        Some(status) if status.is_not_found() => Ok(false),
        // Another object has that name by now, or somebody else wrote this one at the same moment.
        Some(status) if status.is_conflict() => {
            let what = || format!("get {resource} {name}");
            let call = api.get_opt(name);
            let found = context.write("get", resource, what, call).await?;
            if found.is_some_and(|found| found.meta().uid.as_deref() == Some(uid)) {
                return Err(refused);
            }
            Ok(false)
        }
        _ => Err(refused),
    }
}

#[cfg(test)]
mod calls;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_told_and_goes_on_being_told_while_it_lasts() {
        let taken = || Error::Foreign {
            kind: "pod",
            name: "p".to_owned(),
        };
        let late = || Error::Timeout {
            what: "try".to_owned(),
            seconds: 10,
        };
        let told = |errors: Vec<Error>, before| {
            let errors = errors.into_iter().map(Failed::from).collect();
            worst(errors, before, None).map(|failed| failed.error.reason())
        };
        let quota = Some("QuotaExceeded");
        for (errors, before, expected) in [
            (vec![], None, None),
            (vec![late(), taken()], None, Some(Reason::NameConflict)),
            (vec![taken(), late()], None, Some(Reason::NameConflict)),
            (
                vec![taken(), late()],
                Some("Timeout"),
                Some(Reason::Timeout),
            ),
            (
                vec![late(), taken()],
                Some("Timeout"),
                Some(Reason::Timeout),
            ),
            (vec![late(), taken()], quota, Some(Reason::NameConflict)),
        ] {
            assert_eq!(told(errors, before), expected, "{before:?}");
        }
    }

    #[test]
    fn of_what_fails_alike_the_one_that_was_told_of_is_told_of_again() {
        let failed = |resource, name: &str| Failed {
            error: Error::Timeout {
                what: "try".to_owned(),
                seconds: 10,
            },
            made: Some((resource, name.to_owned())),
        };
        let all = || {
            vec![
                failed("pods", "a"),
                failed("pods", "b"),
                failed("services", "b"),
            ]
        };
        for about in [("pods", "a"), ("pods", "b"), ("services", "b")] {
            let about = (about.0, about.1.to_owned());
            let made = worst(all(), Some("Timeout"), Some(&about)).and_then(|failed| failed.made);
            assert_eq!(made, Some(about));
        }
    }
}
