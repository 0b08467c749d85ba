//! A coordinator whose number of replicas changes.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use di_worker_lib::{
    checkpoint::{Checkpoint, CheckpointPolicy},
    coordinator::{Options, outcome::Outcome, progress::Progress},
    model::Model,
    protocol::{http, wire::Envelope},
};
use serde_json::{Value, json};

use crate::{
    files,
    lifecycle::ask,
    mock_replicas::MockReplicas,
    panel::{Training, endless, wait_until},
};

/// Sets the replicas, or gets them without a body. Returns the code and the envelope.
pub async fn replicas(address: &str, body: Option<Value>) -> (u16, Envelope) {
    let (client, url) = (
        http::new_client().unwrap(),
        format!("http://{address}/replicas"),
    );
    let request = match body {
        Some(body) => client.put(url).json(&body),
        None => client.get(url),
    };
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Options that keep the checkpoint of each model.
fn kept() -> Options {
    let keep = CheckpointPolicy {
        every: Duration::ZERO,
        latest: usize::MAX,
        fresh: false,
    };
    let mut options = endless();
    // The learning rate depends on the share of these iterations that is done.
    options.goal.max_iterations = 1_000_000;
    Options { keep, ..options }
}

/// All stored models by version.
fn models(mock_replicas: &MockReplicas) -> BTreeMap<u64, Model> {
    let kept = files(mock_replicas.folder()).into_iter();
    let kept = kept.filter(|file| file.display().to_string().contains("/checkpoint-"));
    let read = |file: PathBuf| Checkpoint::decode(&std::fs::read(file).unwrap()).unwrap();
    let models = kept.map(|file| read(file).model);
    models.map(|model| (model.version, model)).collect()
}

#[tokio::test]
async fn scaling_collectors_does_not_change_models() {
    let mock_replicas = MockReplicas::start().await;
    let mut scaled = Training::begin(&mock_replicas, kept()).await;
    let (code, envelope) = replicas(&scaled.address, None).await;
    assert_eq!(
        (code, envelope.data),
        (200, json!({"collectors": 2, "learners": 1}))
    );
    for (collectors, lost_answers) in [(4, 1), (1, 1)] {
        mock_replicas.lose_next_answers(lost_answers);
        let body = json!({"collectors": collectors});
        let (code, envelope) = replicas(&scaled.address, Some(body)).await;
        let wanted = json!({"collectors": collectors, "learners": 1});
        assert_eq!((code, envelope.data), (200, wanted));
        wait_until(
            || mock_replicas.collectors().len(),
            |count| *count == collectors,
        )
        .await;
        let all = |progress: &Progress| progress.collectors.len() == collectors;
        scaled.wait_for_progress(all).await;
        scaled.wait_for_two_updates().await;
        assert_eq!(
            mock_replicas.collectors().len(),
            collectors,
            "no replica is added twice"
        );
    }
    let (code, envelope) = replicas(&scaled.address, Some(json!({"collector": 3}))).await;
    assert_eq!(code, 400);
    assert!(
        envelope.message.contains("`collectors`"),
        "{}",
        envelope.message
    );
    let keys = mock_replicas.keys();
    assert_eq!(keys.len(), 1 + 2 + 2, "{keys:?}");
    assert!(keys[1] == keys[2] && keys[3] == keys[4] && keys[2] != keys[3]);
    let learners = mock_replicas.learners();
    assert_eq!(learners.len(), 1, "learners do not change");

    let last = scaled.progress.borrow().iteration;
    ask(&scaled.address, "exit").await;
    assert_eq!(scaled.running.await.unwrap().unwrap(), Outcome::Ended);

    let undisturbed = MockReplicas::start().await;
    let mut training = Training::begin(&undisturbed, kept()).await;
    let as_far = |progress: &Progress| progress.iteration > last;
    training.wait_for_progress(as_far).await;
    training.exit_all(&undisturbed, 3).await;
    let (one, other) = (models(&undisturbed), models(&mock_replicas));
    for version in 1..=last {
        assert_eq!(one[&version], other[&version], "model {version}");
    }
}

#[tokio::test]
async fn declared_replicas_cannot_be_scaled_by_coordinator() {
    let mock_replicas = MockReplicas::start().await;
    mock_replicas.declare(1, 1);
    let options = Options {
        declared: true,
        ..endless()
    };
    let training = Training::begin(&mock_replicas, options).await;
    for body in [None, Some(json!({"collectors": 3}))] {
        let (code, envelope) = replicas(&training.address, body).await;
        assert_eq!((code, envelope.success), (409, false));
        let remedy = "kubectl di replicas set pole --collectors=N";
        assert!(envelope.message.contains(remedy), "{}", envelope.message);
    }
    for (request, code) in [("nope", 404), ("lifecycle/pause", 405)] {
        let url = format!("http://{}/{request}", training.address);
        let answer = http::new_client().unwrap().get(url).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), code);
        let envelope: Envelope = answer.json().await.unwrap();
        assert!(!envelope.success && envelope.message.contains("this path"));
    }
    training.exit_all(&mock_replicas, 2).await;
}

#[tokio::test]
async fn restarted_coordinator_does_not_wait_for_quota() {
    let mock_replicas = MockReplicas::start().await;
    let first = Training::begin(&mock_replicas, endless()).await;
    // The replicas of the first coordinator still exist.
    mock_replicas.has_room_for(4);
    let wanted = json!({"collectors": 5, "learners": 1});
    let (code, _) = replicas(&first.address, Some(wanted.clone())).await;
    assert_eq!(code, 200);
    let orders = || {
        let mut all = files(mock_replicas.folder()).into_iter();
        let file = all.find(|file| file.ends_with("orders.json"));
        file.and_then(|file| std::fs::read_to_string(file).ok())
    };
    wait_until(orders, |orders| {
        orders
            .as_ref()
            .is_some_and(|orders| orders.contains("\"collectors\":5"))
    })
    .await;
    first.running.abort();
    assert!(first.running.await.is_err(), "the coordinator was killed");

    let mut second = Training::begin(&mock_replicas, endless()).await;
    second.wait_for_two_updates().await;
    assert_eq!(replicas(&second.address, None).await.1.data, wanted);
    assert_eq!(mock_replicas.collectors().len(), 4);
    ask(&second.address, "exit").await;
    assert_eq!(second.running.await.unwrap().unwrap(), Outcome::Ended);
}

#[tokio::test]
async fn scaling_is_retried_after_endpoint_refusal() {
    let mock_replicas = MockReplicas::start().await;
    let mut training = Training::begin(&mock_replicas, endless()).await;
    mock_replicas.refuse_next_requests(3);
    replicas(
        &training.address,
        Some(json!({"collectors": 1, "learners": 2})),
    )
    .await;
    let there = || {
        (
            mock_replicas.collectors().len(),
            mock_replicas.learners().len(),
        )
    };
    wait_until(there, |there| *there == (1, 2)).await;
    training.wait_for_two_updates().await;
    ask(&training.address, "exit").await;
    assert_eq!(training.running.await.unwrap().unwrap(), Outcome::Ended);
}
