//! What is not made because the job has changed since it was decided.

use di_api::{DIJob, Role};

use crate::Action;

/// Whether a job as it is `now` would still have made what it wanted before: many take their time, and it may be held, deleted, or made smaller
/// meanwhile. Of one whose spec has changed the next look decides anew.
pub(super) fn is_still_wanted(action: &Action, before: &DIJob, now: Option<&DIJob>) -> bool {
    let (Action::CreatePod(entry) | Action::CreateService(entry)) = action else {
        return true;
    };
    let Some(DIJob {
        metadata, status, ..
    }) = now
    else {
        return false;
    };
    if metadata.resource_version == before.metadata.resource_version {
        return true;
    }
    let mut plan = status.iter().flat_map(|status| &status.plan);
    metadata.uid == before.metadata.uid
        && metadata.generation == before.metadata.generation
        && metadata.deletion_timestamp.is_none()
        && (entry.role == Role::Coordinator
            || plan.any(|other| other.name == entry.name && other.is_wanted()))
}

#[cfg(test)]
mod tests {
    use di_api::{EntryState, Origin, PlanEntry};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_job_as_it_is_now_does_not_want_is_not_made() {
        let entry = |name: &str, role| PlanEntry::new(name.to_owned(), role, Origin::Declared, 0);
        let planned = entry("planned", Role::Collector);
        let before: DIJob = serde_json::from_value(json!({
            "metadata": {"name": "j", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"coordinator": {"template": {}}},
            "status": {"plan": [planned]},
        }))
        .unwrap();
        let all = [
            Action::CreatePod(entry("coordinator", Role::Coordinator)),
            Action::CreatePod(planned.clone()),
            Action::CreateService(entry("let-go", Role::Collector)),
            Action::DeleteJob,
        ];
        let wanted = |now: Option<&DIJob>| -> Vec<bool> {
            let of = |action| is_still_wanted(action, &before, now);
            all.iter().map(of).collect()
        };
        let changed = |change: &dyn Fn(&mut DIJob)| {
            let mut now = before.clone();
            now.metadata.resource_version = Some("2".to_owned());
            change(&mut now);
            wanted(Some(&now))
        };
        assert_eq!(wanted(Some(&before)), [true, true, true, true]);
        let of_another_plan = [true, true, false, true];
        assert_eq!(changed(&|_| {}), of_another_plan);
        let none = [false, false, false, true];
        assert_eq!(wanted(None), none);
        let deleted = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(changed(&|now| now.metadata.generation = Some(2)), none);
        assert_eq!(changed(&|now| now.metadata.uid = None), none);
        let going = |now: &mut DIJob| now.metadata.deletion_timestamp.clone_from(&deleted);
        assert_eq!(changed(&going), none);
        let let_go = |now: &mut DIJob| {
            let plan = &mut now.status.as_mut().unwrap().plan;
            plan[0].state = EntryState::Removing;
        };
        assert_eq!(changed(&let_go), [true, false, false, true]);
    }
}
