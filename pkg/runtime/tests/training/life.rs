//! A training that is paused, and goes on.

use std::time::Duration;

use di_runtime::{
    coordinator::{Options, Outcome},
    fleet::Patience,
    http,
    life::{Report, Status},
    training::Goal,
    wire::Envelope,
};
use reqwest::Method;

use crate::{
    begins, coordinator, options, run,
    stand_in::{StandIn, loopback_listener},
};

/// Calls a handle; an empty one asks for the report alone.
async fn ask(address: &str, call: &str) -> Report {
    let (method, path) = match call {
        "" => (Method::GET, "/lifecycle".to_owned()),
        call => (Method::POST, format!("/lifecycle/{call}")),
    };
    let url = format!("http://{address}{path}");
    let answer = http::client()
        .unwrap()
        .request(method, url)
        .send()
        .await
        .unwrap();
    let envelope: Envelope = answer.json().await.unwrap();
    assert!(envelope.success, "{call}: {}", envelope.message);
    serde_json::from_value(envelope.data).unwrap()
}

async fn ask_all(addresses: &[String], call: &str) -> Vec<Report> {
    let mut reports = Vec::new();
    for address in addresses {
        reports.push(ask(address, call).await);
    }
    reports
}

/// Those of the other tests, but only tasks that fail make a replica a lost one, and not how busy this machine is.
pub fn patient() -> Options {
    let options = options();
    Options {
        patience: Patience {
            silent: Duration::from_secs(3600),
            ..options.patience
        },
        ..options
    }
}

/// The coordinator has looked for replicas and at them so often that much would have moved.
async fn long_enough(stand_in: &StandIn) {
    let until = stand_in.lists() + 12;
    while stand_in.lists() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn paused_replicas_stand_still_and_are_not_lost_and_the_training_reaches_its_goal() {
    let stand_in = StandIn::start().await;
    let coordinator = coordinator(&stand_in, patient());
    let mut progress = coordinator.progress();
    let running = tokio::spawn(run(coordinator));
    begins(&mut progress).await;
    let replicas = stand_in.addresses();
    assert_eq!(replicas.len(), 3);

    let paused = ask_all(&replicas, "pause").await;
    assert!(paused.iter().all(|report| report.status == Status::Paused));
    assert!(paused.iter().all(|report| report.samples > 0));
    long_enough(&stand_in).await;
    let iteration = progress.borrow().iteration;
    long_enough(&stand_in).await;
    assert_eq!(ask_all(&replicas, "").await, paused, "nothing moves");
    assert_eq!(progress.borrow().iteration, iteration);
    assert!(!running.is_finished());

    // The learner, whose name comes last. Its defaults are what it has already.
    let configured = ask(&replicas[2], "configure").await;
    assert_eq!(configured.status, Status::Configured);
    ask_all(&replicas, "start").await;
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Solved);
    assert!(stand_in.failed().is_empty(), "nobody was lost");
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

#[tokio::test]
async fn a_paused_coordinator_hands_out_no_task() {
    let stand_in = StandIn::start().await;
    let goal = Goal {
        target_return: 501.0,
        max_iterations: u64::MAX,
        ..Goal::default()
    };
    let coordinator = coordinator(&stand_in, Options { goal, ..patient() });
    let mut progress = coordinator.progress();
    let listener = loopback_listener().await;
    let address = listener.local_addr().unwrap().to_string();
    let running = tokio::spawn(coordinator.run(listener, std::future::pending()));
    begins(&mut progress).await;
    let mut all = stand_in.addresses();
    all.push(address.clone());

    let paused = ask(&address, "pause").await;
    assert_eq!(paused.status, Status::Paused);
    assert!(paused.samples > 0 && paused.batches > 0);
    // What is called comes after what was counted last.
    ask_all(&stand_in.addresses(), "start").await;
    let before = ask_all(&all, "").await;
    assert_eq!(before.last(), Some(&paused));
    assert_eq!(before[0].status, Status::Running, "the others run idle");
    long_enough(&stand_in).await;
    assert_eq!(ask_all(&all, "").await, before, "nothing moves");

    ask(&address, "start").await;
    let iteration = progress.borrow().iteration;
    progress
        .wait_for(|progress| progress.iteration >= iteration + 2)
        .await
        .unwrap();
    assert_eq!(ask(&address, "exit").await.status, Status::Exiting);
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Interrupted);
    assert!(stand_in.failed().is_empty());
}
