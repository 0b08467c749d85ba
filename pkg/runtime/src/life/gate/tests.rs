use serde_json::json;

use super::*;

const DONE: Polled = Polled {
    samples: 10,
    batches: 1,
};

/// Whether something is not there yet, having begun.
async fn waits<F: Future + Unpin>(future: &mut F) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

#[tokio::test]
async fn a_pause_is_told_once_nothing_is_on_its_way() {
    let gate = Gate::running();
    let (first, second) = (gate.pass().unwrap(), gate.pass().unwrap());
    first.landed(DONE);
    let mut pause = Box::pin(gate.call(Call::Pause, json!({})));
    assert!(waits(&mut pause).await, "one is on its way");
    assert!(gate.pass().is_none(), "and none is let through");
    second.landed(DONE);
    let paused = pause.await.unwrap();
    assert_eq!((paused.status, paused.samples), (Status::Paused, 20));
    assert_eq!(gate.call(Call::Pause, json!({})).await.unwrap(), paused);
    let started = gate.call(Call::Start, json!({})).await.unwrap();
    assert_eq!(started.status, Status::Running);
    gate.note(Stats::from([("evaluation".into(), 9.5)]));
    drop(gate.pass().unwrap());
    let report = gate.report();
    assert_eq!(report.samples, 20, "one that failed does not count");
    assert!(report.line().ends_with(", evaluation 9.5000"));
    gate.end(Some("no storage".to_owned()));
    assert_eq!(gate.report().status, Status::Error);
    assert!(gate.call(Call::Start, json!({})).await.is_err());
}

#[test]
fn it_is_configured_and_started_once_what_it_needs_is_there() {
    let gate = Gate::unready();
    for call in [Call::Configure, Call::Start] {
        let refused = gate.tell(call, || {}).unwrap_err().to_string();
        assert!(refused.contains("not there yet"), "{refused}");
    }
    gate.ready();
    assert!(gate.pass().is_none(), "it is not started");
    gate.configure(|| {}).unwrap();
    gate.tell(Call::Start, || {}).unwrap();
    assert!(gate.pass().is_some());
    let mut taken = false;
    assert!(
        gate.configure(|| taken = true).is_err(),
        "not while it runs"
    );
    assert!(!taken);
    gate.end(None);
    gate.ready();
    assert_eq!(gate.report().status, Status::Completed);
}

#[tokio::test]
async fn who_waits_for_a_pause_hears_that_it_is_over() {
    let gate = Gate::running();
    let flight = gate.pass().unwrap();
    let mut pause = Box::pin(gate.call(Call::Pause, json!({})));
    assert!(waits(&mut pause).await);
    gate.call(Call::Start, json!({})).await.unwrap();
    assert_eq!(pause.await.unwrap().status, Status::Running);
    drop(flight);
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_the_clock() {
    let gate = Gate::running();
    let start = Instant::now();
    let run = tokio::spawn({
        let gate = gate.clone();
        async move { gate.run_for(Duration::from_secs(60)).await }
    });
    sleep(Duration::from_secs(20)).await;
    gate.call(Call::Pause, json!({})).await.unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert!(!run.is_finished());
    gate.call(Call::Start, json!({})).await.unwrap();
    run.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 3660);
}
