//! Jobs with a gang, with a stand-in for the coscheduling plugin of kube-scheduler.

mod api_and_permissions;
mod groups;
mod kills;
mod placement;
mod queues;
mod stops;

use std::collections::BTreeSet;

use di_api::{ConditionType, DIJobStatus, SchedulingStatus, find_condition};
use di_apiserver_tests::{Gangs, Space, Write, wait_for_objects};
use kube::api::DynamicObject;

/// Waits until a job is not ready for this reason, and returns the message.
pub(crate) async fn until_problem(space: &Space, job: &str, reason: &str) -> String {
    let find_message = |status: &DIJobStatus| {
        let ready = find_condition(&status.conditions, ConditionType::ReplicasReady)?;
        let is_problem = ready.status == "False" && ready.reason == reason;
        is_problem.then(|| ready.message.clone())
    };
    let is_waiting = |status: &DIJobStatus| find_message(status).is_some();
    let status = space.until(job, reason, is_waiting).await;
    assert_eq!(status.reason.as_deref(), Some(reason));
    find_message(&status).unwrap()
}

/// Waits until a job has no group.
async fn until_no_group(gangs: &Gangs, job: &str) {
    wait_for_objects("PodGroups", &[], async || gangs.groups_of(job).await).await;
}

fn min_member(group: &DynamicObject) -> Option<i64> {
    group.data["spec"]["minMember"].as_i64()
}

/// Whether the status has a gang of this size, in this state.
fn has_gang(status: &DIJobStatus, min_member: i32, placed: bool) -> bool {
    let is_so = |gang: &SchedulingStatus| (gang.min_member, gang.placed) == (min_member, placed);
    status.scheduling.as_ref().is_some_and(is_so)
}

/// Checks that the group was created before the pods, that pods of the floor got nodes once all of
/// them were created, and that other pods were created once the floor had nodes.
fn check_order(writes: &[Write], floor: &BTreeSet<String>) {
    let created = |resource: &str| {
        let creates = writes.iter().filter(|write| write.code == 201);
        let creates = creates.filter(|write| write.is_call("create", resource));
        creates.cloned().collect::<Vec<_>>()
    };
    let group = created("podgroups").swap_remove(0);
    let bindings = created("pods/binding");
    let first_binding = |name: &String| {
        let mut bindings = bindings.iter();
        let binding = bindings.find(|binding| binding.name == *name);
        binding.unwrap_or_else(|| panic!("{name} has no node"))
    };
    let first_start = floor.iter().map(|name| &first_binding(name).received);
    let first_start = first_start.min().unwrap();
    let placed = floor.iter().map(|name| &first_binding(name).answered);
    let placed = placed.max().unwrap();
    for pod in created("pods") {
        assert!(group.answered <= pod.received, "{group:?} {pod:?}");
        if floor.contains(&pod.name) {
            assert!(pod.received <= *first_start, "{pod:?} {first_start}");
        } else {
            assert!(*placed <= pod.received, "{placed} {pod:?}");
        }
    }
}
