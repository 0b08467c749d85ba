//! Tests of the failures in the status.

use di_api::{FailureRecord, Phase, Role};
use di_plan::MAX_FAILURES_BYTES;
use jiff::SignedDuration;

use super::*;

fn fail_with_tail(world: &mut World, name: &str, code: i32, tail: &str) {
    world.exit(name, code, "Error");
    let end = world.pods.get_mut(name).unwrap().end.as_mut().unwrap();
    end.log_tail = Some(tail.into());
}

fn summary(failure: &FailureRecord) -> (Role, Option<i32>, i32, Option<&str>) {
    let tail = failure.tail.as_deref();
    (failure.role, failure.exit_code, failure.count, tail)
}

#[test]
fn failed_coordinator_leaves_its_last_lines() {
    for (enabled, tail, message) in [
        (
            true,
            Some("usage: train\nerror: --pcae\ntry --help"),
            "the coordinator failed: Error (exit code 2): error: --pcae",
        ),
        (false, None, "the coordinator failed: Error (exit code 2)"),
    ] {
        let mut world = running();
        world.job.spec.failure_tails = enabled;
        fail_with_tail(
            &mut world,
            COORDINATOR,
            2,
            "usage: train\nerror: --pcae\ntry --help",
        );
        world.settle();
        let status = world.status();
        assert_eq!(status.phase, Some(Phase::Failed));
        let failures: Vec<_> = status.failures.iter().map(summary).collect();
        assert_eq!(failures, [(Role::Coordinator, Some(2), 1, tail)]);
        let failed = status.conditions.iter().find(|c| c.type_ == "Failed");
        assert_eq!(failed.unwrap().message, message);
    }
}

#[test]
fn equal_failures_are_counted_newest_first() {
    let mut world = running();
    let mut names = Vec::new();
    for (code, tail) in [(1, "first"), (3, "other"), (1, "second")] {
        let name = world.wanted(Role::Collector).remove(0);
        fail_with_tail(&mut world, &name, code, tail);
        names.push(name);
        world.settle();
        world.now += SignedDuration::from_hours(1);
        world.settle();
        world.run_all();
        world.settle();
    }
    let status = world.status();
    let failures: Vec<_> = status.failures.iter().map(summary).collect();
    let collector = Role::Collector;
    assert_eq!(
        failures,
        [
            (collector, Some(1), 2, Some("second")),
            (collector, Some(3), 1, Some("other"))
        ]
    );
    assert_eq!(status.failures[0].pod, names[2]);
    assert_eq!(status.failures[0].index, Some(0));
}

#[test]
fn failures_stay_within_their_limits() {
    let mut world = World::running(di_fixtures::Job::test().collectors(30));
    for (code, name) in (1..).zip(world.wanted(Role::Collector)) {
        // Each line end has two bytes as JSON.
        fail_with_tail(&mut world, &name, code, &"\n".repeat(2048));
    }
    world.settle();
    let failures = &world.status().failures;
    assert_eq!(failures.len(), 10);
    assert!(failures[0].tail.is_some() && failures[9].tail.is_none());
    let size = serde_json::to_vec(failures).unwrap().len();
    assert!(size <= MAX_FAILURES_BYTES, "{size}");
}
