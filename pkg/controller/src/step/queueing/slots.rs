//! Slots: each is admitted quota for one pod.

use std::collections::HashMap;

use di_api::PlanEntry;
use di_cache::QueueApi;
use di_plan::{PodView, WorkloadView, replica_workload_name};

use super::{
    super::{learner_groups::group_owner_entry, observed::Observed, outcome::Step},
    base_quota::{has_unknown_pod, placement_of},
    workloads::{base_name, own_workloads},
};

/// Workload and pod set.
type SlotKey = (String, String);

/// Numbers of pods that may be created. A terminating pod uses its slot until it is gone, so its
/// replacement waits.
pub struct Slots {
    /// Name of the base Workload. `None` without a queue.
    base: Option<String>,
    api: QueueApi,
    free: HashMap<SlotKey, i32>,
    /// Others wait until it is gone.
    has_unknown_pod: bool,
}

impl Slots {
    /// The slots that the existing pods leave free.
    pub fn new(observed: &Observed, plan: &[PlanEntry], step: &Step) -> Self {
        let Some(queueing) = &step.status.queueing else {
            return Self {
                base: None,
                api: observed.queue.api,
                free: HashMap::new(),
                has_unknown_pod: false,
            };
        };
        let base = base_name(observed);
        let mut free: HashMap<SlotKey, i32> = HashMap::new();
        if observed.queue.api == QueueApi::Forbidden {
            // Kueue still counts the quota of the job, so it has no more pods than replicas.
            let wanted = plan.iter().filter(|entry| entry.is_wanted() && !entry.done);
            for key in wanted.filter_map(|entry| slot_key(&base, plan, entry, step)) {
                *free.entry(key).or_default() += 1;
            }
        } else {
            for workload in own_workloads(observed).filter(|workload| workload.is_admitted()) {
                for (pod_set, capacity) in capacities(workload, &queueing.workload, step) {
                    free.insert((workload.name.clone(), pod_set), capacity);
                }
            }
        }
        for entry in plan {
            if observed
                .own_pod(&entry.name)
                .is_some_and(PodView::is_active)
                && let Some(key) = slot_key(&base, plan, entry, step)
                && let Some(free) = free.get_mut(&key)
            {
                *free -= 1;
            }
        }
        Self {
            base: Some(base),
            api: observed.queue.api,
            free,
            has_unknown_pod: has_unknown_pod(observed, plan),
        }
    }

    /// Takes a slot for the pod of an entry. Returns false if there is none.
    pub fn take(&mut self, plan: &[PlanEntry], entry: &PlanEntry, step: &Step) -> bool {
        let Some(base) = &self.base else {
            return true;
        };
        let Some(key) = slot_key(base, plan, entry, step) else {
            return false;
        };
        match self.api {
            QueueApi::Unknown => return false,
            // Kueue no longer counts the quota of the job.
            QueueApi::NotServed => return true,
            QueueApi::Served(_) if self.has_unknown_pod => return false,
            QueueApi::Served(_) | QueueApi::Forbidden => {}
        }
        let Some(free) = self.free.get_mut(&key).filter(|free| **free > 0) else {
            return false;
        };
        *free -= 1;
        true
    }
}

fn capacities(workload: &WorkloadView, base: &str, step: &Step) -> Vec<(String, i32)> {
    let mut workload = workload.clone();
    if workload.name == base {
        // The status is ahead of the Workload.
        let reclaimed = step
            .status
            .queueing
            .iter()
            .flat_map(|queueing| &queueing.reclaimed);
        for (pod_set, count) in reclaimed {
            let known = workload.reclaimable.entry(pod_set.clone()).or_default();
            *known = (*known).max(*count);
        }
    }
    let all = workload.capacities().into_iter();
    all.map(|(pod_set, capacity)| (pod_set.to_owned(), capacity))
        .collect()
}

fn slot_key(base: &str, plan: &[PlanEntry], entry: &PlanEntry, step: &Step) -> Option<SlotKey> {
    let placement = placement_of(step.status.queueing.as_ref()?, entry)?;
    let owner = group_owner_entry(plan, entry);
    let workload = match owner.queue {
        None => base.to_owned(),
        Some(_) => replica_workload_name(base, owner),
    };
    Some((workload, placement.pod_set.clone()))
}
