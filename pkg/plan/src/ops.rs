//! Changes of the plan. A name enters it before its pod is made, and leaves it after its pod and service are gone.

use std::collections::HashSet;

use di_api::{DIJob, EntryState, Origin, PlanEntry, ReplicaResources, Role};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::{
    names::{Suffixes, fresh},
    view::{PodView, Stage, uid},
};

/// Roles that users declare and coordinators request.
const WORKERS: [Role; 2] = [Role::Collector, Role::Learner];

/// The entry of this name.
pub fn find<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    plan.iter().find(|entry| entry.name == name)
}

/// The replica that holds the place of `name` now: itself while it is wanted, else the last that replaced it.
pub fn successor<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    if let Some(entry) = find(plan, name).filter(|entry| entry.is_wanted()) {
        return Some(entry);
    }
    let next = plan
        .iter()
        .find(|entry| entry.replaces.as_deref() == Some(name))?;
    successor(plan, &next.name)
}

/// The lowest number that no entry of the role has.
fn free_index(plan: &[PlanEntry], role: Role) -> i32 {
    let taken: HashSet<_> = plan
        .iter()
        .filter(|entry| entry.role == role)
        .map(|entry| entry.index)
        .collect();
    (0..i32::MAX)
        .find(|index| !taken.contains(index))
        .unwrap_or(i32::MAX)
}

fn new_entry(
    plan: &[PlanEntry],
    role: Role,
    origin: Origin,
    name: String,
    now: Timestamp,
) -> PlanEntry {
    PlanEntry {
        name,
        role,
        origin,
        index: free_index(plan, role),
        uid: None,
        state: EntryState::Wanted,
        group: None,
        resources: ReplicaResources::default(),
        replaces: None,
        attempt: 0,
        planned_at: Some(Time(now)),
        not_before: None,
        claimed_by: None,
        request_key: None,
    }
}

/// Brings the Declared entries in line with the spec: adds what is missing, marks what is too much.
pub fn declare(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    pods: &[PodView],
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) {
    for role in WORKERS {
        let Some(declared) = job.spec.declared(role) else {
            mark_surplus(
                plan,
                pods,
                |e| e.role == role && e.origin == Origin::Declared,
                0,
            );
            continue;
        };
        let groups = declared.groups;
        mark_surplus(
            plan,
            pods,
            |e| {
                e.role == role
                    && e.origin == Origin::Declared
                    && e.group
                        .as_ref()
                        .is_some_and(|g| !groups.iter().any(|known| known.name == *g))
            },
            0,
        );
        let buckets = std::iter::once((None, declared.replicas, ReplicaResources::default()))
            .chain(
                groups
                    .iter()
                    .map(|g| (Some(g.name.clone()), g.replicas, g.resources.clone())),
            );
        for (group, wanted, resources) in buckets {
            let of_bucket =
                |e: &PlanEntry| e.role == role && e.origin == Origin::Declared && e.group == group;
            let wanted = usize::try_from(wanted).unwrap_or(0);
            let have = plan
                .iter()
                .filter(|e| of_bucket(e) && e.is_wanted())
                .count();
            for _ in have..wanted {
                let name = fresh(&job.name_any(), role, plan, suffixes);
                plan.push(PlanEntry {
                    group: group.clone(),
                    resources: resources.clone(),
                    ..new_entry(plan, role, Origin::Declared, name, now)
                });
            }
            mark_surplus(plan, pods, of_bucket, wanted);
        }
    }
}

/// Marks as Removing all but `keep` of the wanted entries that `of` selects. Returns the names marked.
fn mark_surplus(
    plan: &mut [PlanEntry],
    pods: &[PodView],
    of: impl Fn(&PlanEntry) -> bool,
    keep: usize,
) -> Vec<String> {
    let mut wanted: Vec<usize> = (0..plan.len())
        .filter(|&i| plan[i].is_wanted() && of(&plan[i]))
        .collect();
    if wanted.len() <= keep {
        return Vec::new();
    }
    wanted.sort_by_key(|&i| rank(&plan[i], i, pods));
    let surplus = wanted.len() - keep;
    wanted
        .into_iter()
        .take(surplus)
        .map(|i| {
            plan[i].state = EntryState::Removing;
            plan[i].name.clone()
        })
        .collect()
}

/// Who goes first: those not ready, then the newest.
fn rank(entry: &PlanEntry, position: usize, pods: &[PodView]) -> impl Ord + use<> {
    let ready = pods
        .iter()
        .any(|pod| pod.name == entry.name && pod.ready && !pod.deleting);
    let planned = entry.planned_at.as_ref().map(|time| time.0);
    (ready, std::cmp::Reverse((planned, position)))
}

/// What a coordinator asks for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How many replicas.
    pub count: usize,
    /// Resources that differ from the template's.
    pub resources: ReplicaResources,
    /// The coordinator's incarnation, as `pod UID/restart count`; none when somebody else asks in its name.
    pub incarnation: Option<String>,
    /// `Idempotency-Key` of the request.
    pub key: Option<String>,
}

/// Plans what a coordinator asks for and returns the names.
///
/// A request of the same key is answered with what it planned the first time. A coordinator that was restarted is served first with
/// what earlier incarnations of it left, so that the fleet never doubles.
pub fn request(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    role: Role,
    wish: &Request,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) -> Vec<String> {
    if wish.key.is_some() {
        let before: Vec<_> = plan
            .iter()
            .filter(|e| e.role == role && e.request_key == wish.key && e.is_wanted())
            .map(|e| e.name.clone())
            .collect();
        if !before.is_empty() {
            return before;
        }
    }
    let mut names = Vec::with_capacity(wish.count);
    if wish.incarnation.is_some() {
        let left = plan.iter_mut().filter(|e| {
            e.role == role
                && e.origin == Origin::Requested
                && e.is_wanted()
                && e.resources == wish.resources
                && e.claimed_by.is_some()
                && e.claimed_by != wish.incarnation
        });
        for entry in left.take(wish.count) {
            entry.claimed_by.clone_from(&wish.incarnation);
            entry.request_key.clone_from(&wish.key);
            names.push(entry.name.clone());
        }
    }
    while names.len() < wish.count {
        let name = fresh(&job.name_any(), role, plan, suffixes);
        names.push(name.clone());
        plan.push(PlanEntry {
            resources: wish.resources.clone(),
            claimed_by: wish.incarnation.clone(),
            request_key: wish.key.clone(),
            ..new_entry(plan, role, Origin::Requested, name, now)
        });
    }
    names
}

/// Lets go of `count` Requested replicas of a role, or of as many as there are. Returns the names.
pub fn release(plan: &mut [PlanEntry], pods: &[PodView], role: Role, count: usize) -> Vec<String> {
    let of = |e: &PlanEntry| e.role == role && e.origin == Origin::Requested;
    let have = plan.iter().filter(|e| e.is_wanted() && of(e)).count();
    mark_surplus(plan, pods, of, have.saturating_sub(count))
}

/// Lets go of `count` Declared replicas of a role that belong to no group, or of as many as there are; the caller lowers the declared
/// count in the same operation. Returns the names.
pub fn release_declared(
    plan: &mut [PlanEntry],
    pods: &[PodView],
    role: Role,
    count: usize,
) -> Vec<String> {
    let of = |e: &PlanEntry| e.role == role && e.origin == Origin::Declared && e.group.is_none();
    let have = plan.iter().filter(|e| e.is_wanted() && of(e)).count();
    mark_surplus(plan, pods, of, have.saturating_sub(count))
}

/// Lets go of one replica.
pub fn remove(plan: &mut [PlanEntry], name: &str) {
    for entry in plan.iter_mut().filter(|entry| entry.name == name) {
        entry.state = EntryState::Removing;
    }
}

/// Swaps a replica for one with a fresh name and the same index. Returns the name that holds its place now, which is that of an
/// earlier successor where it was swapped before; nothing for names that the plan does not know.
///
/// `ran` is how long it ran, in seconds, where that is known.
pub fn replace(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    name: &str,
    ran: Option<i64>,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) -> Option<String> {
    let Some(i) = plan
        .iter()
        .position(|entry| entry.name == name && entry.is_wanted())
    else {
        return successor(plan, name).map(|entry| entry.name.clone());
    };
    let attempt = match ran {
        Some(seconds) if seconds >= HEALTHY_AFTER_SECONDS => 0,
        _ => plan[i].attempt,
    };
    let fresh = fresh(&job.name_any(), plan[i].role, plan, suffixes);
    let next = PlanEntry {
        name: fresh.clone(),
        uid: None,
        replaces: Some(name.to_owned()),
        attempt: attempt.saturating_add(1),
        planned_at: Some(Time(now)),
        not_before: backoff(attempt)
            .and_then(|wait| now.checked_add(wait).ok())
            .map(Time),
        ..plan[i].clone()
    };
    plan[i].state = EntryState::Replaced;
    // One failed pod per index is kept for its logs: the one that failed last.
    if let Some(before) = plan[i].replaces.clone() {
        remove(plan, &before);
    }
    plan.push(next);
    Some(fresh)
}

/// A replica that ran this long, in seconds, was healthy: its next failure counts as the first.
const HEALTHY_AFTER_SECONDS: i64 = 600;
const FIRST_BACKOFF_SECONDS: i64 = 10;
const LONGEST_BACKOFF_SECONDS: i64 = 300;

/// How long to wait before the pod of a replacement is made; the first is immediate.
fn backoff(attempt: i32) -> Option<jiff::SignedDuration> {
    let doublings = u32::try_from(attempt).ok()?.checked_sub(1)?;
    let seconds = 2_i64
        .checked_pow(doublings.min(16))
        .map_or(LONGEST_BACKOFF_SECONDS, |factor| {
            FIRST_BACKOFF_SECONDS * factor
        });
    Some(jiff::SignedDuration::from_secs(
        seconds.min(LONGEST_BACKOFF_SECONDS),
    ))
}

/// Takes in pods of the job that have no entry (made by an older server, or left when the status was lost): they are counted, not killed.
pub fn adopt(job: &DIJob, plan: &mut Vec<PlanEntry>, pods: &[PodView], now: Timestamp) {
    let mut strangers: Vec<_> = pods
        .iter()
        .filter(|pod| pod.belongs_to(uid(job)) && !pod.deleting)
        .filter_map(|pod| Some((pod, pod.role.filter(|role| WORKERS.contains(role))?)))
        .filter(|(pod, _)| find(plan, &pod.name).is_none())
        .collect();
    strangers.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    for (pod, role) in strangers {
        let declared = job
            .spec
            .declared(role)
            .map_or(0, |declared| declared.replicas);
        let have = plan
            .iter()
            .filter(|e| {
                e.role == role && e.origin == Origin::Declared && e.group.is_none() && e.is_wanted()
            })
            .count();
        let origin = if have < usize::try_from(declared).unwrap_or(0) {
            Origin::Declared
        } else {
            Origin::Requested
        };
        plan.push(PlanEntry {
            // One that failed is kept for its logs; whether its place is wanted is not known.
            state: if pod.stage() == Stage::Failed {
                EntryState::Replaced
            } else {
                EntryState::Wanted
            },
            ..new_entry(plan, role, origin, pod.name.clone(), now)
        });
    }
}

/// Drops entries that are let go of and of which nothing is left.
pub fn drop_gone(plan: &mut Vec<PlanEntry>, is_there: impl Fn(&str) -> bool) {
    plan.retain(|entry| entry.is_wanted() || is_there(&entry.name));
}
