//! Compares a computed status with the stored one: a write may not be needed, may wait, or is
//! urgent.

use di_api::{ConditionType, DIJobStatus, EntryState, Phase};

use crate::Step;

/// How a computed status differs from the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusChange {
    /// It does not differ.
    None,
    /// Only counts, readiness and membership differ. Actions do not depend on them, so they are
    /// applied now, and the status is written later.
    CountsOnly,
    /// The difference is not urgent, and no action follows from it.
    Minor,
    /// The plan differs, or actions follow from the status. It is urgent unless the plan is large.
    Plan,
    /// The status must not wait.
    Urgent,
}

impl StatusChange {
    /// Compares the status of a step with the stored one.
    pub fn between(old: Option<&DIJobStatus>, step: &Step) -> Self {
        let new = &step.status;
        let Some(old) = old else {
            // A job that is deleted before it has a status gets none.
            return if *new == DIJobStatus::default() {
                Self::None
            } else {
                Self::Urgent
            };
        };
        if old == new {
            Self::None
        } else if !step.actions.is_empty() && without_counts(old) == without_counts(new) {
            Self::CountsOnly
        } else if significant_fields(old) != significant_fields(new) {
            Self::Urgent
        } else if step.actions.is_empty() && entry_states(old).eq(entry_states(new)) {
            Self::Minor
        } else {
            Self::Plan
        }
    }
}

/// Returns the fields that make a write urgent when they change. The plan is compared separately.
fn significant_fields(status: &DIJobStatus) -> (Option<Phase>, i32) {
    // These phases follow the coordinator's pod, in the same burst as the counts. So a job whose
    // pods start at once begins with two writes: the plan, and all the rest. See
    // docs/decisions/0028.
    let phase = status
        .phase
        .filter(|phase| !matches!(phase, Phase::Created | Phase::Running | Phase::Unknown));
    (phase, status.restarts)
}

fn entry_states(status: &DIJobStatus) -> impl Iterator<Item = (&str, EntryState)> {
    let plan = status.plan.iter();
    plan.map(|entry| (entry.name.as_str(), entry.state))
}

/// Returns the fields that actions depend on: without counts, the condition about them, and the
/// membership.
fn without_counts(status: &DIJobStatus) -> DIJobStatus {
    let mut status = without_membership(status);
    status.replica_status.clear();
    status
        .conditions
        .retain(|condition| condition.type_ != ConditionType::ReplicasReady.as_str());
    (
        status.collectors_ready,
        status.learners_ready,
        status.reason,
    ) = (None, None, None);
    status
}

/// Returns true if the statuses differ in the membership at most.
pub(crate) fn equals_without_membership(old: &DIJobStatus, new: &DIJobStatus) -> bool {
    without_membership(old) == without_membership(new)
}

fn without_membership(status: &DIJobStatus) -> DIJobStatus {
    let mut status = status.clone();
    status.membership_generation = None;
    for entry in &mut status.plan {
        entry.listed = false;
    }
    status
}

#[cfg(test)]
mod tests {
    use di_api::{Origin, PlanEntry, Role};

    use super::*;
    use crate::Action;

    fn entry(name: &str) -> PlanEntry {
        PlanEntry::new(name.to_owned(), Role::Collector, Origin::Declared, 0)
    }

    #[test]
    fn change_of_counts_is_minor_and_of_plan_is_not() {
        let old = DIJobStatus {
            plan: vec![entry("one"), entry("two")],
            ..DIJobStatus::default()
        };
        let change_to = |status: &DIJobStatus, actions| {
            let step = Step {
                status: status.clone(),
                actions,
                ..Step::default()
            };
            StatusChange::between(Some(&old), &step)
        };
        let create_pod = || vec![Action::CreatePod(entry("one"))];
        assert_eq!(change_to(&old, create_pod()), StatusChange::None);

        let mut counted = old.clone();
        counted.collectors_ready = Some("1/2".to_owned());
        assert_eq!(change_to(&counted, vec![]), StatusChange::Minor);
        assert_eq!(change_to(&counted, create_pod()), StatusChange::CountsOnly);

        let mut listed = old.clone();
        listed.membership_generation = Some(1);
        listed.plan[0].listed = true;
        assert_eq!(change_to(&listed, vec![]), StatusChange::Minor);
        assert_eq!(change_to(&listed, create_pod()), StatusChange::CountsOnly);

        let mut created = counted.clone();
        created.phase = Some(Phase::Created);
        created.plan[0].uid = Some("u".to_owned());
        assert_eq!(change_to(&created, vec![]), StatusChange::Minor);
        assert_eq!(change_to(&created, create_pod()), StatusChange::Plan);
        created.phase = Some(Phase::Succeeded);
        assert_eq!(change_to(&created, vec![]), StatusChange::Urgent);

        let mut replaced = old.clone();
        replaced.plan[0].state = EntryState::Replaced;
        assert_eq!(change_to(&replaced, vec![]), StatusChange::Plan);
        let mut restarted = old.clone();
        restarted.restarts = 1;
        assert_eq!(change_to(&restarted, vec![]), StatusChange::Urgent);
    }

    #[test]
    fn first_status_is_written_unless_empty() {
        let planned = DIJobStatus {
            plan: vec![entry("one")],
            ..DIJobStatus::default()
        };
        for (status, change) in [
            (DIJobStatus::default(), StatusChange::None),
            (planned, StatusChange::Urgent),
        ] {
            let step = Step {
                status,
                ..Step::default()
            };
            assert_eq!(StatusChange::between(None, &step), change);
        }
    }
}
