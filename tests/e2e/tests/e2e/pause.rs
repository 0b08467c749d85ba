//! A training that is paused and resumed with the plugin.

use di_api::Phase;
use di_e2e::{
    FOREVER, Namespace, ReplicaStates, eventually, kubectl_di, logs_so_far, replica_states,
    samples, send_http, training, wait_for_phase,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

/// Port of the coordinator.
const PORT: u16 = 22273;

/// Waits until this number of replicas responds.
async fn wait_for_replica_states(ns: &Namespace, replicas: usize) -> ReplicaStates {
    let all = |states: &ReplicaStates| states.len() == replicas;
    eventually("all can be asked", || replica_states(ns, "train"), all).await
}

fn all_are(states: &ReplicaStates, wanted: &str) -> bool {
    states.values().all(|(status, _)| status == wanted)
}

#[tokio::test]
async fn training_pauses_and_resumes() {
    Namespace::with("pause", |ns| async move {
        let replicas = ["--collectors", "1", "--learners", "1", "--pace", "500ms"];
        let job = training("train", &[&replicas[..], &FOREVER].concat());
        ns.submit(&job).await;
        let trains = |states: &ReplicaStates| {
            let counts = || states.keys().all(|name| samples(states, name) > 0);
            states.len() == 3 && all_are(states, "running") && counts()
        };
        eventually("training", || replica_states(&ns, "train"), trains).await;

        let paused = kubectl_di(&ns, &["pause", "train"]).await;
        assert_eq!(paused.code, Some(0), "{paused:?}");
        let lines: Vec<_> = paused.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "{paused:?}");
        assert_eq!(lines[0], "pod/train-coordinator paused", "{paused:?}");
        assert!(lines.iter().all(|line| line.ends_with(" paused")));
        let before = wait_for_replica_states(&ns, 3).await;
        assert!(all_are(&before, "paused"), "{before:?}");

        // A collector that joins now would get a task at once if the training ran.
        let add = ["replicas", "add", "train", "--collectors=1", "--wait"];
        let added = kubectl_di(&ns, &add).await;
        assert_eq!(added.code, Some(0), "{added:?}");
        let with_new = wait_for_replica_states(&ns, 4).await;
        let mut names = with_new.keys();
        let new = names.find(|name| !before.contains_key(*name)).unwrap();
        eventually(
            "known to the coordinator",
            || logs_so_far(&ns, "train-coordinator"),
            |log| log.contains(&format!("{new} is configured and gets no tasks")),
        )
        .await;
        let mut after = wait_for_replica_states(&ns, 4).await;
        assert_eq!(after.remove(new), Some(("configured".to_owned(), 0)));
        assert_eq!(after, before, "nothing moves");

        let started = kubectl_di(&ns, &["start", "train"]).await;
        assert_eq!(started.code, Some(0), "{started:?}");
        assert_eq!(started.stdout.lines().count(), 4, "{started:?}");
        let have_more_samples = |states: &ReplicaStates| {
            let more = || {
                let mut names = states.keys();
                names.all(|name| samples(states, name) > samples(&before, name))
            };
            states.len() == 4 && all_are(states, "running") && more()
        };
        eventually(
            "resumed",
            || replica_states(&ns, "train"),
            have_more_samples,
        )
        .await;

        // The coordinator uses collectors that are added and removed, and then ends the training.
        for (change, replicas) in [("add", 5), ("delete", 3)] {
            let count = if change == "add" { 1 } else { 2 };
            let count = format!("--collectors={count}");
            let changed = kubectl_di(&ns, &["replicas", change, "train", &count, "--wait"]).await;
            assert_eq!(changed.code, Some(0), "{changed:?}");
            let train = |states: &ReplicaStates| {
                let samples = states.keys().map(|name| samples(states, name));
                states.len() == replicas && samples.min() > Some(0)
            };
            eventually("training as many", || replica_states(&ns, "train"), train).await;
        }
        let (pods, path) = (ns.api::<Pod>(), "/lifecycle/exit");
        let answer = send_http(
            &pods,
            "train-coordinator",
            PORT,
            "POST",
            path,
            None,
            &json!({}),
        )
        .await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body["data"]["status"], "exiting");
        wait_for_phase(&ns, "train", Phase::Succeeded).await;
    })
    .await;
}
