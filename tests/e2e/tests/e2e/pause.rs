//! A training that stands still and goes on, as the plugin tells it to.

use di_api::Phase;
use di_e2e::{
    FOREVER, Namespace, Told, di, eventually, http, logs_so_far, reaches, samples, told, training,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Where a coordinator listens.
const PORT: u16 = 22273;

/// What so many replicas tell.
async fn told_by(ns: &Namespace, replicas: usize) -> Told {
    let all = |told: &Told| told.len() == replicas;
    eventually("all can be asked", || told(ns, "train"), all).await
}

fn all_are(told: &Told, wanted: &str) -> bool {
    told.values().all(|(status, _)| status == wanted)
}

#[tokio::test]
async fn a_training_is_paused_and_goes_on() {
    Namespace::with("pause", |ns| async move {
        let replicas = ["--collectors", "1", "--learners", "1", "--pace", "500ms"];
        let job = training("train", &[&replicas[..], &FOREVER].concat());
        ns.submit(&job).await;
        let trains = |told: &Told| {
            let counts = || told.keys().all(|name| samples(told, name) > 0);
            told.len() == 3 && all_are(told, "running") && counts()
        };
        eventually("training", || told(&ns, "train"), trains).await;

        let paused = di(&ns, &["pause", "train"]).await;
        assert_eq!(paused.code, Some(0), "{paused:?}");
        let lines: Vec<_> = paused.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "{paused:?}");
        assert_eq!(lines[0], "pod/train-coordinator paused", "{paused:?}");
        assert!(lines.iter().all(|line| line.ends_with(" paused")));
        let before = told_by(&ns, 3).await;
        assert!(all_are(&before, "paused"), "{before:?}");

        // A collector that comes meanwhile would be given a task at once, if it ran.
        let add = ["replicas", "add", "train", "--collectors=1", "--wait"];
        let added = di(&ns, &add).await;
        assert_eq!(added.code, Some(0), "{added:?}");
        let with_new = told_by(&ns, 4).await;
        let mut names = with_new.keys();
        let new = names.find(|name| !before.contains_key(*name)).unwrap();
        eventually(
            "known to the coordinator",
            || logs_so_far(&ns, "train-coordinator"),
            |log| log.contains(&format!("{new} is configured and gets no tasks")),
        )
        .await;
        let mut after = told_by(&ns, 4).await;
        assert_eq!(after.remove(new), Some(("configured".to_owned(), 0)));
        assert_eq!(after, before, "nothing moves");

        let started = di(&ns, &["start", "train"]).await;
        assert_eq!(started.code, Some(0), "{started:?}");
        assert_eq!(started.stdout.lines().count(), 4, "{started:?}");
        let go_on = |told: &Told| {
            let more = || {
                let mut names = told.keys();
                names.all(|name| samples(told, name) > samples(&before, name))
            };
            told.len() == 4 && all_are(told, "running") && more()
        };
        eventually("going on", || told(&ns, "train"), go_on).await;

        // The coordinator has another one come and two go, and then has all end.
        let call = async |method: &str, path: &str, body: Value| {
            let pods = ns.api::<Pod>();
            let answer = http(&pods, "train-coordinator", PORT, method, path, None, &body).await;
            let mut answer = answer.expect("an answer");
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            answer.body["data"].take()
        };
        for (collectors, replicas) in [(3, 5), (1, 3)] {
            let wanted = call("PUT", "/replicas", json!({"collectors": collectors})).await;
            assert_eq!(wanted, json!({"collectors": collectors, "learners": 1}));
            let train = |told: &Told| {
                let samples = told.keys().map(|name| samples(told, name));
                told.len() == replicas && samples.min() > Some(0)
            };
            eventually("training as many", || told(&ns, "train"), train).await;
        }
        let ended = call("POST", "/lifecycle/exit", json!({})).await;
        assert_eq!(ended["status"], "exiting");
        reaches(&ns, "train", Phase::Succeeded).await;
    })
    .await;
}
