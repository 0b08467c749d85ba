//! One job in each state that lasts.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Job, Space, exit, fail_to_pull, report_node_lost, wait_for_objects};
use serde_json::Value;

use crate::suspend::set_suspended;

/// Names of the jobs; none of them needs writes.
pub(crate) const STATES: [&str; 6] = [
    "created",
    "pulling",
    "running",
    "lost",
    "suspended",
    "ended",
];

/// Pins the coordinator to a node without a kubelet.
fn pin_to_missing_node(spec: &mut Value) {
    spec["coordinator"]["template"]["spec"]["nodeName"] = "missing-node".into();
}

fn pending_and_active(status: &DIJobStatus) -> (i32, i32) {
    let counts = status.replica_status.values();
    counts.fold((0, 0), |(pending, active), n| {
        (pending + n.pending, active + n.active)
    })
}

/// Creates the jobs, with a kubelet, and waits until they are settled.
pub(crate) async fn make_all(space: &Space) {
    for name in STATES {
        let job = Job::new(name, 1);
        let job = match name {
            "created" | "pulling" => job.with(pin_to_missing_node),
            _ => job,
        };
        space.create(&job).await;
    }
    let half = |s: &DIJobStatus| {
        s.phase == Some(Phase::Created)
            && pending_and_active(s) == (1, 1)
            && s.plan.iter().all(|entry| entry.uid.is_some())
            && s.collectors_ready.as_deref() == Some("1/1")
    };
    space.until("created", "its collector runs", half).await;
    space.until("pulling", "its collector runs", half).await;
    fail_to_pull(&space.pods(), "pulling-coordinator").await;
    let is_reported = |s: &DIJobStatus| half(s) && s.reason.as_deref() == Some("ImagePullBackOff");
    space
        .until("pulling", "the image is reported", is_reported)
        .await;

    for job in ["running", "lost", "suspended", "ended"] {
        space.until_settled(job).await;
    }
    report_node_lost(&space.pods(), "lost-coordinator").await;
    space.until_phase("lost", Phase::Unknown).await;

    set_suspended(space, "suspended", true).await;
    let freed = |s: &DIJobStatus| {
        let made = s.plan.iter().any(|entry| entry.uid.is_some());
        s.phase == Some(Phase::Suspended) && pending_and_active(s) == (0, 0) && !made
    };
    space
        .until("suspended", "all objects are deleted", freed)
        .await;

    exit(&space.pods(), "ended-coordinator", 0).await;
    let over = |s: &DIJobStatus| {
        s.phase == Some(Phase::Succeeded) && pending_and_active(s) == (0, 0) && s.plan.is_empty()
    };
    space
        .until("ended", "the remaining pods are counted", over)
        .await;
    for job in ["suspended", "ended"] {
        wait_for_objects("services", &[], async || space.services_of(job).await).await;
    }
    // The last event of each job.
    for (job, last) in [
        ("created", "SuccessfulCreate"),
        ("pulling", "SuccessfulCreate"),
        ("running", "CoordinatorRunning"),
        ("lost", "NodeLost"),
        ("suspended", "Suspended"),
        ("ended", "SuccessfulDelete"),
    ] {
        space.until_event(job, last).await;
    }
}
