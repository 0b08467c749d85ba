//! A training that is paused and resumed.

use std::time::Duration;

use di_worker_lib::{
    coordinator::{Options, progress::Outcome, replica_table::ReplicaTimeouts},
    lifecycle::{Report, Status},
    protocol::{http, wire::Envelope},
};
use serde_json::{Value, json};

use crate::{
    coordinator, mock_replicas::MockReplicas, options, panel::wait_until, run,
    wait_for_first_update,
};

/// Sends a life-cycle call, or `GET` with an empty call. Returns the code, the envelope and the
/// report.
pub async fn call(address: &str, call: &str, body: &Value) -> (u16, Envelope, Report) {
    let client = http::new_client().unwrap();
    let url = format!("http://{address}/lifecycle");
    let request = match call {
        "" => client.get(url),
        call => client.post(format!("{url}/{call}")).json(body),
    };
    let answer = request.send().await.unwrap();
    let code = answer.status().as_u16();
    let envelope: Envelope = answer.json().await.unwrap();
    let report = serde_json::from_value(envelope.data.clone()).unwrap();
    (code, envelope, report)
}

/// Sends a call that must succeed; an empty call gets the report.
pub async fn ask(address: &str, name: &str) -> Report {
    let (_, envelope, report) = call(address, name, &json!({})).await;
    assert!(envelope.success, "{name}: {}", envelope.message);
    report
}

pub async fn ask_all(addresses: &[String], call: &str) -> Vec<Report> {
    let mut reports = Vec::new();
    for address in addresses {
        reports.push(ask(address, call).await);
    }
    reports
}

/// Options for slow machines: only failed tasks make a replica lost.
pub fn patient() -> Options {
    let options = options();
    Options {
        patience: ReplicaTimeouts {
            silent: Duration::from_secs(3600),
            ..options.patience
        },
        ..options
    }
}

/// Waits until the coordinator has polled the replicas several times.
async fn wait_for_lists(mock_replicas: &MockReplicas) {
    let lists = mock_replicas.lists() + 12;
    wait_until(|| mock_replicas.lists(), |now| *now >= lists).await;
}

#[tokio::test]
async fn paused_replicas_are_not_lost_and_training_resumes() {
    let mock_replicas = MockReplicas::start().await;
    let coordinator = coordinator(&mock_replicas, patient());
    let mut progress = coordinator.subscribe_progress();
    let running = tokio::spawn(run(coordinator));
    wait_for_first_update(&mut progress).await;
    let replicas = mock_replicas.addresses();
    assert_eq!(replicas.len(), 3);

    let paused = ask_all(&replicas, "pause").await;
    assert!(paused.iter().all(|report| report.status == Status::Paused));
    assert!(paused.iter().all(|report| report.samples > 0));
    wait_for_lists(&mock_replicas).await;
    let iteration = progress.borrow().iteration;
    wait_for_lists(&mock_replicas).await;
    assert_eq!(ask_all(&replicas, "").await, paused, "nothing moves");
    assert_eq!(progress.borrow().iteration, iteration);
    assert!(!running.is_finished());

    ask_all(&replicas, "start").await;
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Solved);
    assert!(mock_replicas.failed().is_empty(), "no replica was lost");
    let after = ask_all(&replicas, "").await;
    let pairs = after.iter().zip(&paused);
    assert!(
        pairs
            .clone()
            .all(|(after, paused)| after.samples > paused.samples)
    );
    assert!(
        pairs
            .clone()
            .all(|(after, paused)| after.batches > paused.batches)
    );
}
