//! Tests of the failures in the status.

use di_api::{FailureRecord, Phase, Role};
use di_plan::MAX_FAILURES_BYTES;
use jiff::SignedDuration;

use super::{
    pod_states::{Disruption, Main, Sidecar, State},
    *,
};

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

fn with_rules(rules: &serde_json::Value) -> World {
    World::running(job().spec(json!({"failureRules": rules})))
}

#[test]
fn rule_fails_the_job_with_its_name() {
    for name in ["", "config"] {
        let codes = json!({"operator": "In", "values": [2]});
        let mut world =
            with_rules(&json!([{"name": name, "onExitCodes": codes, "action": "FailJob"}]));
        world.job.spec.backoff_limit = 5;
        let collector = world.wanted(Role::Collector).remove(0);
        fail_with_tail(&mut world, &collector, 2, "error: --pcae");
        world.settle();
        let status = world.status();
        assert_eq!(
            (status.phase, status.reason.as_deref()),
            (Some(Phase::Failed), Some("FailureRule"))
        );
        let rule = if name.is_empty() { "0" } else { name };
        let failed = status
            .conditions
            .iter()
            .find(|c| c.type_ == "Failed")
            .unwrap();
        let expected =
            format!("failure rule {rule}: {collector} failed: Error (exit code 2): error: --pcae");
        assert_eq!(failed.message, expected);
        assert_eq!(status.failures[0].rule.as_deref(), Some(rule));
    }
}

#[test]
fn rule_decides_about_the_coordinator() {
    for (action, phase, restarts) in [
        ("FailJob", Phase::Failed, 0),
        ("Done", Phase::Succeeded, 0),
        ("Ignore", Phase::Created, 0),
        ("Count", Phase::Created, 1),
    ] {
        let codes = json!({"operator": "NotIn", "values": [1]});
        let mut world = with_rules(
            &json!([{"roles": ["coordinator"], "onExitCodes": codes, "action": action}]),
        );
        world.job.spec.backoff_limit = 1;
        world.exit(COORDINATOR, 3, "Error");
        world.settle();
        let status = world.status();
        assert_eq!(
            (status.phase, status.restarts),
            (Some(phase), restarts),
            "{action}"
        );
    }
}

#[test]
fn ignored_failure_has_no_growing_delay() {
    let codes = json!({"operator": "In", "values": [3]});
    let mut world = with_rules(&json!([{"onExitCodes": codes, "action": "Ignore"}]));
    for _ in 0..4 {
        let collector = world.wanted(Role::Collector).remove(1);
        world.exit(&collector, 3, "Error");
        world.settle();
        let next = world
            .plan()
            .iter()
            .find(|e| e.replaces.as_ref() == Some(&collector))
            .unwrap();
        let delay = next
            .not_before
            .as_ref()
            .unwrap()
            .0
            .duration_since(world.now);
        assert_eq!((next.attempt, delay), (0, SignedDuration::from_secs(1)));
        world.now += delay;
        world.settle();
        world.run_all();
        world.settle();
    }
}

#[test]
fn done_replica_is_not_replaced() {
    let codes = json!({"operator": "In", "values": [3]});
    let mut world = with_rules(&json!([{"onExitCodes": codes, "action": "Done"}]));
    let collector = world.wanted(Role::Collector).remove(0);
    world.exit(&collector, 3, "Error");
    world.settle();
    let entry = world.plan().iter().find(|e| e.name == collector).unwrap();
    assert!(entry.done && entry.is_wanted());
    assert_eq!(world.plan().len(), 3);
}

/// A job with one collector of 32Mi, whose memory doubles twice.
fn with_growing_memory() -> World {
    let rule = json!({
        "name": "oom", "onReasons": ["OOMKilled"], "limit": 2,
        "growMemory": {"factor": "2", "limit": "100Mi"},
    });
    let resources = json!({"limits": {"memory": "32Mi"}});
    let container = json!({"name": "di-container", "image": "i", "resources": resources});
    let template = json!({"spec": {"containers": [container]}});
    let collector = json!({"template": template, "replicas": 1});
    let spec = json!({"failureRules": [rule], "collector": collector});
    World::running(di_fixtures::Job::test().spec(spec))
}

fn memory_limit(world: &World, name: &str) -> String {
    let pod = world.object(name).spec.as_ref().unwrap();
    let resources = pod.containers[0].resources.as_ref().unwrap();
    resources.limits.as_ref().unwrap()["memory"].0.clone()
}

fn start_next_pod(world: &mut World) {
    world.settle();
    world.now += SignedDuration::from_hours(1);
    world.settle();
    world.run_all();
    world.settle();
}

#[test]
fn memory_grows_until_the_limit_of_the_rule() {
    let mut world = with_growing_memory();
    for memory in ["64Mi", "100Mi"] {
        let collector = world.wanted(Role::Collector).remove(0);
        world.exit(&collector, 137, "OOMKilled");
        start_next_pod(&mut world);
        let next = world.wanted(Role::Collector).remove(0);
        assert_eq!(memory_limit(&world, &next), memory);
    }
    let collector = world.wanted(Role::Collector).remove(0);
    world.exit(&collector, 137, "OOMKilled");
    world.settle();
    let status = world.status();
    assert_eq!(status.reason.as_deref(), Some("FailureRule"));
    let failed = status.conditions.iter().find(|c| c.type_ == "Failed");
    let message = &failed.unwrap().message;
    assert!(
        message.contains("the rule has matched 3 times, its limit is 2"),
        "{message}"
    );
}

/// Replaces a replica as the endpoint does after a report of the coordinator.
fn report_failed(world: &mut World, name: &str) {
    let (job, now) = (world.job.clone(), world.now);
    let plan = &mut world.job.status.as_mut().unwrap().plan;
    di_plan::replace(&job, plan, name, None, &mut di_plan::RandomSuffixes, now);
    plan.last_mut().unwrap().reported = true;
}

#[test]
fn failure_reported_by_the_coordinator_is_evaluated_once() {
    let mut world = with_growing_memory();
    let collector = world.wanted(Role::Collector).remove(0);
    report_failed(&mut world, &collector);
    let step = world.compute_step();
    assert!(
        step.actions.is_empty(),
        "waits for the kubelet: {:?}",
        step.actions
    );
    assert!(
        step.requeue_after.unwrap().as_secs() <= 3,
        "{:?}",
        step.requeue_after
    );
    world.exit(&collector, 137, "OOMKilled");
    start_next_pod(&mut world);
    let next = world.wanted(Role::Collector).remove(0);
    assert_eq!(memory_limit(&world, &next), "64Mi");
    let failures: Vec<_> = world.status().failures.iter().map(summary).collect();
    assert_eq!(failures, [(Role::Collector, Some(137), 1, None)]);
}

#[test]
fn reported_pod_that_runs_is_replaced_after_three_seconds() {
    let mut world = with_growing_memory();
    let collector = world.wanted(Role::Collector).remove(0);
    report_failed(&mut world, &collector);
    world.settle();
    assert!(world.pods.contains_key(&collector) && !world.pods[&collector].deleting);
    world.now += SignedDuration::from_secs(3);
    world.settle();
    assert!(world.pods[&collector].deleting);
    assert!(world.status().failures.is_empty());
}

#[test]
fn failures_of_learner_group_are_all_evaluated_and_counted_once() {
    let resources = json!({"gpus": "6"});
    let groups = json!([{"name": "big", "replicas": 1, "resources": resources}]);
    let learner = json!({"template": di_fixtures::template(), "groups": groups});
    let codes = |code: i32| json!({"operator": "In", "values": [code]});
    let rules = json!([
        {"name": "crash", "onExitCodes": codes(1), "limit": 1},
        {"name": "config", "onExitCodes": codes(2), "action": "FailJob"},
    ]);
    for second_code in [1, 2] {
        let spec = json!({"learner": learner, "failureRules": rules});
        let mut world = World::running(di_fixtures::Job::test().spec(spec));
        let members = world.wanted(Role::DdpLearner);
        world.exit(&members[0], 1, "Error");
        world.exit(&members[1], second_code, "Error");
        world.settle();
        let group = world.wanted(Role::Aggregator);
        if second_code == 2 {
            assert_eq!(world.status().reason.as_deref(), Some("FailureRule"));
            assert_eq!(world.status().failures.len(), 2);
        } else {
            let entry = world
                .plan()
                .iter()
                .find(|entry| entry.name == group[0])
                .unwrap();
            assert_eq!(entry.rule_matches["crash"], 1);
        }
    }
}

#[test]
fn waiting_reason_matches_after_a_minute() {
    let mut world = with_rules(&json!([{"onReasons": ["ErrImagePull"], "action": "FailJob"}]));
    let collector = world.wanted(Role::Collector).remove(0);
    world.set_state(&collector, State::of(Main::NoImage, Sidecar::None));
    let uid = world.pods[&collector].uid.clone();
    world.waiting_since.insert(uid, world.now);
    world.now += SignedDuration::from_secs(59);
    let step = world.compute_step();
    assert_eq!(step.status.phase, Some(Phase::Running));
    assert!(
        step.requeue_after.unwrap().as_secs() <= 1,
        "{:?}",
        step.requeue_after
    );
    world.now += SignedDuration::from_secs(1);
    world.settle();
    let status = world.status();
    assert_eq!(status.reason.as_deref(), Some("FailureRule"));
    assert_eq!(status.failures[0].reason, "ImagePullBackOff");
}

#[test]
fn disruption_matches_no_exit_code() {
    let codes = json!({"operator": "NotIn", "values": [1]});
    let mut world = with_rules(&json!([{"onExitCodes": codes, "action": "FailJob"}]));
    let collector = world.wanted(Role::Collector).remove(0);
    let evicted = State::of(Main::Exited(137), Sidecar::None);
    world.set_state(&collector, evicted.disrupted(Disruption::EvictedWithStatus));
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));
    assert_eq!(world.status().failures[0].reason, "Evicted");
}
