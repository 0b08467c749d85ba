//! Managers with clock skew: jobs end as with a correct clock.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Job, Kubelet, Manager, Space, eventually, exit};
use di_controller::Settings;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::faults::job_run::{ProxiedManager, complete_like_reference, short_timeout_settings};

const OFF: SignedDuration = SignedDuration::from_hours(1);

fn ahead() -> Timestamp {
    Timestamp::now() + OFF
}

fn behind() -> Timestamp {
    Timestamp::now() - OFF
}

type Clock = fn() -> Timestamp;

const CLOCKS: [(&str, Clock); 2] = [("ahead", ahead), ("behind", behind)];

fn settings_with_clock(clock: Clock) -> Settings {
    Settings {
        clock,
        ..short_timeout_settings()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_completes_with_manager_clock_skew() {
    for (name, clock) in CLOCKS {
        let managed = ProxiedManager::start_in(Space::new().await, settings_with_clock(clock));
        let end = complete_like_reference(&managed.space).await;
        managed.stop_and_record(end).await.check(name, 10);
    }
}

/// The manager compares times that its own clock recorded, not those of pods.
#[tokio::test]
async fn deadline_and_ttl_hold_with_manager_clock_skew() {
    for (name, clock) in CLOCKS {
        let space = Space::new().await;
        let _kubelet = Kubelet::running(&space);
        let client = space.server.client_of_manager("manager", &space.namespace);
        let manager = Manager::start_with(client, settings_with_clock(clock));
        let patient = Job::new("patient", 1).with(|spec| {
            spec["activeDeadlineSeconds"] = 600.into();
            spec["ttlSecondsAfterFinished"] = 600.into();
        });
        space.create(&patient).await;
        space.until_settled("patient").await;
        space.create(&Job::new("late", 1)).await;
        // A coordinator without a node would be deleted at the deadline instead of kept.
        space.until_settled("late").await;
        let late = Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 1}}));
        let params = PatchParams::default();
        space.jobs().patch("late", &params, &late).await.unwrap();
        let late = space.until_phase("late", Phase::Failed).await;
        assert_eq!(late.reason.as_deref(), Some("DeadlineExceeded"), "{name}");
        eventually("the coordinator is ended and kept", async || {
            let pod = space.pods().get("late-coordinator").await.unwrap();
            let deadline = pod.spec.as_ref().unwrap().active_deadline_seconds;
            let going = pod.metadata.deletion_timestamp.is_some();
            (deadline == Some(1) && !going)
                .then_some(())
                .ok_or(format!("{deadline:?}"))
        })
        .await;
        space
            .create(&Job::new("brief", 1).with(|spec| spec["ttlSecondsAfterFinished"] = 1.into()))
            .await;
        space.until_settled("brief").await;
        exit(&space.pods(), "brief-coordinator", 0).await;
        eventually("the job goes when its time is over", async || {
            let left = space.jobs().get_opt("brief").await.unwrap();
            left.map_or(Ok(()), |job| Err(format!("{:?}", job.status)))
        })
        .await;
        let status = space.until_settled("patient").await;
        assert_eq!(status.phase, Some(Phase::Running), "{name}");
        exit(&space.pods(), "patient-coordinator", 0).await;
        space.until_phase("patient", Phase::Succeeded).await;
        manager.stop().await;
    }
}

#[tokio::test]
async fn replacement_ignores_clock_of_previous_manager() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = |clock| {
        let client = space.server.client_of_manager("manager", &space.namespace);
        Manager::start_with(client, settings_with_clock(clock))
    };
    let first = manager(ahead);
    space.create(&Job::new("failing", 1)).await;
    for attempt in 0..2 {
        let ready = |s: &DIJobStatus| {
            let place = s.plan.iter().find(|entry| entry.is_wanted());
            s.collectors_ready.as_deref() == Some("1/1")
                && place.is_some_and(|entry| entry.attempt == attempt)
        };
        let status = space.until("failing", "a collector is ready", ready).await;
        let place = status.plan.iter().find(|entry| entry.is_wanted()).unwrap();
        exit(&space.pods(), &place.name, 1).await;
    }
    let waits = |s: &DIJobStatus| {
        let mut wanted = s.plan.iter().filter(|entry| entry.is_wanted());
        wanted.any(|entry| entry.not_before.is_some() && entry.attempt == 2)
    };
    space.until("failing", "the next one waits", waits).await;
    first.kill().await;
    let second = manager(behind);
    let ready = |s: &DIJobStatus| s.collectors_ready.as_deref() == Some("1/1");
    // By the clock of the first manager this would take hours.
    space.until("failing", "a collector is ready", ready).await;
    second.stop().await;
}
