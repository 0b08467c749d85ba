//! Checks right before a create that the newest job still desires it.

use di_api::{DIJob, Role};

use crate::Action;

/// Returns true if the `newest` job still desires an action that was computed from `observed`.
///
/// Many creates take time. Meanwhile the job may be suspended, deleted or scaled down. If its spec
/// has changed, the next step decides again.
pub(super) fn is_still_desired(action: &Action, observed: &DIJob, newest: Option<&DIJob>) -> bool {
    let (Action::CreatePod(entry) | Action::CreateService(entry)) = action else {
        return true;
    };
    let Some(DIJob {
        metadata, status, ..
    }) = newest
    else {
        return false;
    };
    if metadata.resource_version == observed.metadata.resource_version {
        return true;
    }
    let mut plan = status.iter().flat_map(|status| &status.plan);
    metadata.uid == observed.metadata.uid
        && metadata.generation == observed.metadata.generation
        && metadata.deletion_timestamp.is_none()
        // The plan has no entry for the coordinator. See docs/decisions/0002.
        && (entry.role == Role::Coordinator
            || plan.any(|other| other.name == entry.name && other.is_wanted()))
}

#[cfg(test)]
mod tests {
    use di_api::{EntryState, Origin, PlanEntry};
    use di_fixtures::Job;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    #[test]
    fn create_without_wanted_plan_entry_is_skipped() {
        let entry = |name: &str, role| PlanEntry::new(name.to_owned(), role, Origin::Declared, 0);
        let planned = entry("planned", Role::Collector);
        let observed = Job::test().metadata(json!({"generation": 1, "resourceVersion": "1"}));
        let observed: DIJob = observed.status(json!({"plan": [planned]})).build();
        let all = [
            Action::CreatePod(entry("coordinator", Role::Coordinator)),
            Action::CreatePod(planned.clone()),
            Action::CreateService(entry("unplanned", Role::Collector)),
            Action::DeleteJob,
        ];
        let desired_by = |newest: Option<&DIJob>| -> Vec<bool> {
            let is_desired = |action| is_still_desired(action, &observed, newest);
            all.iter().map(is_desired).collect()
        };
        let desired_after = |change: &dyn Fn(&mut DIJob)| {
            let mut newest = observed.clone();
            newest.metadata.resource_version = Some("2".to_owned());
            change(&mut newest);
            desired_by(Some(&newest))
        };
        assert_eq!(desired_by(Some(&observed)), [true, true, true, true]);
        let planned_only = [true, true, false, true];
        assert_eq!(desired_after(&|_| {}), planned_only);
        let none = [false, false, false, true];
        assert_eq!(desired_by(None), none);
        let deleted = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(
            desired_after(&|newest| newest.metadata.generation = Some(2)),
            none
        );
        assert_eq!(desired_after(&|newest| newest.metadata.uid = None), none);
        let delete = |newest: &mut DIJob| newest.metadata.deletion_timestamp.clone_from(&deleted);
        assert_eq!(desired_after(&delete), none);
        let scale_down = |newest: &mut DIJob| {
            let plan = &mut newest.status.as_mut().unwrap().plan;
            plan[0].state = EntryState::Removing;
        };
        assert_eq!(desired_after(&scale_down), [true, false, false, true]);
    }
}
