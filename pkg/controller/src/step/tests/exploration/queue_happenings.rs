//! Happenings by Kueue and the gang scheduler.

use di_cache::OptionalApi;
use proptest::prelude::*;

/// An event in the queue of a job, or in its gang.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueHappening {
    /// Kueue admits the nth Workload that waits.
    Admit(usize),
    /// Kueue evicts the nth Workload with quota.
    Evict(usize),
    /// An administrator deactivates the nth Workload that is active, or activates one that is not.
    SetActive(usize, bool),
    /// A user deletes the nth Workload.
    DeleteWorkload(usize),
    /// A user deletes the group.
    DeleteGroup,
    /// The API of Kueue is served, or not, or the orchestrator may not use it, or its watch ends.
    ServeKueue(OptionalApi<()>),
    /// The same for the API of the gang scheduler.
    ServeGroups(OptionalApi<()>),
    /// The gang scheduler assigns nodes, of which this number is free.
    Schedule(usize),
}

pub(super) fn queue_happening() -> impl Strategy<Value = QueueHappening> {
    let nth = || 0..4_usize;
    prop_oneof![
        8 => nth().prop_map(QueueHappening::Admit),
        3 => nth().prop_map(QueueHappening::Evict),
        1 => (nth(), any::<bool>()).prop_map(|(n, active)| QueueHappening::SetActive(n, active)),
        1 => nth().prop_map(QueueHappening::DeleteWorkload),
        1 => Just(QueueHappening::DeleteGroup),
        1 => any_api().prop_map(QueueHappening::ServeKueue),
        1 => any_api().prop_map(QueueHappening::ServeGroups),
        6 => (0..9_usize).prop_map(QueueHappening::Schedule),
    ]
}

/// Mostly served: a job without the API of Kueue only waits.
fn any_api() -> impl Strategy<Value = OptionalApi<()>> {
    prop_oneof![
        4 => Just(OptionalApi::Served(())),
        1 => Just(OptionalApi::NotServed),
        1 => Just(OptionalApi::Forbidden),
        1 => Just(OptionalApi::Unknown),
    ]
}
