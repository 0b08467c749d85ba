//! Creates that were rejected, or not sent because similar ones were. They wait until the backoff
//! of their job is over.

use std::collections::HashSet;

use crate::Action;

/// Deferred creates of one job.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeferredCreates {
    /// Resource and name of each object.
    objects: HashSet<(&'static str, String)>,
    /// Generation of the job at the creates. A newer spec may have fixed the error.
    generation: Option<i64>,
}

impl DeferredCreates {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn contains(&self, object: &(&'static str, String)) -> bool {
        self.objects.contains(object)
    }

    /// Returns true if the creates follow from this generation of the job.
    pub fn is_of(&self, generation: Option<i64>) -> bool {
        self.generation == generation
    }

    /// Adds creates of this generation of the job.
    pub fn add(
        &mut self,
        objects: impl IntoIterator<Item = (&'static str, String)>,
        generation: Option<i64>,
    ) {
        self.objects.extend(objects);
        self.generation = generation;
    }

    /// Removes the deferred creates from the actions. Returns true if it removed any.
    ///
    /// If the coordinator is deferred, removes all creates of pods, which could take its place in
    /// a quota.
    pub fn remove_from(&self, actions: &mut Vec<Action>) -> bool {
        let is_deferred = |action: &Action| {
            let object = action.created_object();
            object.is_some_and(|object| self.objects.contains(&object))
        };
        let coordinator_is_deferred = actions
            .iter()
            .any(|action| action.creates_coordinator() && is_deferred(action));
        let is_pod = |action: &Action| matches!(action, Action::CreatePod(_));
        let count = actions.len();
        actions
            .retain(|action| !(is_deferred(action) || coordinator_is_deferred && is_pod(action)));
        actions.len() < count
    }
}

#[cfg(test)]
mod tests {
    use di_api::{Origin, PlanEntry, Role};

    use super::*;

    #[test]
    fn deferred_coordinator_defers_all_pods() {
        let pod = |name: &str, role| {
            Action::CreatePod(PlanEntry::new(name.to_owned(), role, Origin::Declared, 0))
        };
        let (coordinator, collector) = (
            pod("j-coordinator", Role::Coordinator),
            pod("fresh", Role::Collector),
        );
        let service = match &collector {
            Action::CreatePod(entry) => Action::CreateService(entry.clone()),
            _ => unreachable!(),
        };
        let all = [coordinator, collector.clone(), service.clone()];
        for (name, rest) in [
            ("j-coordinator", vec![service.clone()]),
            ("another", all.to_vec()),
            ("fresh", vec![all[0].clone(), service]),
        ] {
            let mut actions = all.to_vec();
            let mut deferred = DeferredCreates::default();
            deferred.add([("pods", name.to_owned())], None);
            let has_removed = deferred.remove_from(&mut actions);
            assert_eq!(actions, rest, "{name}");
            assert_eq!(has_removed, actions.len() < all.len(), "{name}");
        }
    }
}
