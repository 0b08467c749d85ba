use serde_json::json;

use super::*;

const DONE: PollResult = PollResult {
    samples: 10,
    batches: 1,
};

/// Whether a future that was polled once is pending.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

#[tokio::test]
async fn pause_waits_for_in_flight_tasks() {
    let gate = PauseGate::new_running();
    let (first, second) = (gate.try_admit().unwrap(), gate.try_admit().unwrap());
    first.complete(DONE);
    let mut pause = Box::pin(gate.handle_call(Call::Pause, json!({})));
    assert!(is_pending(&mut pause).await, "one task is in task");
    assert!(gate.try_admit().is_none(), "no task is admitted");
    second.complete(DONE);
    let paused = pause.await.unwrap();
    assert_eq!((paused.status, paused.samples), (Status::Paused, 20));
    assert_eq!(
        gate.handle_call(Call::Pause, json!({})).await.unwrap(),
        paused
    );
    let started = gate.handle_call(Call::Start, json!({})).await.unwrap();
    assert_eq!(started.status, Status::Running);
    gate.set_stats(Stats::from([("evaluation".into(), 9.5)]));
    drop(gate.try_admit().unwrap());
    let report = gate.current_report();
    assert_eq!(report.samples, 20, "failed tasks do not count");
    assert!(report.log_line().ends_with(", evaluation 9.5000"));
    gate.mark_ended(Some("no storage".to_owned()));
    assert_eq!(gate.current_report().status, Status::Error);
    assert!(gate.handle_call(Call::Start, json!({})).await.is_err());
}

#[test]
fn unready_gate_rejects_configure_and_start() {
    let gate = PauseGate::new_unready();
    for call in [Call::Configure, Call::Start] {
        let refused = gate.apply_call(call, || {}).unwrap_err().to_string();
        assert!(refused.contains("are not ready"), "{refused}");
    }
    gate.mark_ready();
    assert!(gate.try_admit().is_none(), "the gate is not started");
    gate.configure(|| {}).unwrap();
    gate.apply_call(Call::Start, || {}).unwrap();
    assert!(gate.try_admit().is_some());
    let mut applied = false;
    assert!(
        gate.configure(|| applied = true).is_err(),
        "rejected while the gate runs"
    );
    assert!(!applied);
    gate.mark_ended(None);
    gate.mark_ready();
    assert_eq!(gate.current_report().status, Status::Completed);
}

#[tokio::test]
async fn start_during_pause_ends_wait() {
    let gate = PauseGate::new_running();
    let task = gate.try_admit().unwrap();
    let mut pause = Box::pin(gate.handle_call(Call::Pause, json!({})));
    assert!(is_pending(&mut pause).await);
    gate.handle_call(Call::Start, json!({})).await.unwrap();
    assert_eq!(pause.await.unwrap().status, Status::Running);
    drop(task);
}

#[tokio::test(start_paused = true)]
async fn pause_stops_run_time() {
    let gate = PauseGate::new_running();
    let start = Instant::now();
    let run = tokio::spawn({
        let gate = gate.clone();
        async move { gate.run_for(Duration::from_secs(60)).await }
    });
    sleep(Duration::from_secs(20)).await;
    gate.handle_call(Call::Pause, json!({})).await.unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert!(!run.is_finished());
    gate.handle_call(Call::Start, json!({})).await.unwrap();
    run.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 3660);
}
