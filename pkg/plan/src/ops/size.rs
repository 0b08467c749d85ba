//! How large a plan becomes: it stands in the status of its job, and etcd takes [no more than 1.5 MiB](https://etcd.io/docs/v3.5/dev-guide/limit/)
//! at once.

use di_api::{EntryState, PlanEntry, names};

use super::follow;

/// Of a job, so many replicas that are replaced are kept for their logs: the newest.
const MOST_KEPT: usize = 100;
/// So many entries may be there beside those that are wanted.
const MOST_LET_GO: usize = 300;

/// Has entries that are let go of say no more than whose they are, and lets go of all but the newest of those that are kept for their logs.
pub fn shorten(plan: &mut [PlanEntry]) {
    let is_kept = |entry: &PlanEntry| entry.state == EntryState::Replaced;
    let kept = plan.iter().filter(|entry| is_kept(entry)).count();
    let surplus = kept.saturating_sub(MOST_KEPT);
    let oldest = plan.iter_mut().filter(|entry| is_kept(entry));
    for entry in oldest.take(surplus) {
        entry.state = EntryState::Removing;
    }
    follow(plan);
    for entry in plan.iter_mut().filter(|entry| !entry.is_wanted()) {
        (entry.claimed_by, entry.request_key) = (None, None);
        (entry.attempt, entry.not_before) = (0, None);
    }
}

/// Whether a plan has room for a replacement. Else it waits until some of those that are let go of are gone.
pub fn has_room(plan: &[PlanEntry]) -> bool {
    let wanted = plan.iter().filter(|entry| entry.is_wanted()).count();
    let most = usize::try_from(names::MAX_REPLICAS).unwrap_or_default();
    plan.len() < wanted.max(most) + MOST_LET_GO
}
