//! Events of a job and of its replicas.

use std::process::Stdio;

use di_apiserver_tests::Job;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::plugin::{Plugin, ageless};

/// Tells of an object of the job, `later` seconds after its creation.
async fn tell(plugin: &Plugin, about: (&str, &str, &str), what: (&str, &str), later: i64) {
    let (kind, name, uid) = about;
    let job = plugin.space.jobs().get("j").await.unwrap();
    let created = job.creation_timestamp().unwrap().0.as_second();
    let when = jiff::Timestamp::from_second(created + later).unwrap();
    let event: Event = serde_json::from_value(json!({
        "metadata": {"generateName": "e-"},
        "involvedObject": {"kind": kind, "name": name, "uid": uid, "namespace": plugin.space.namespace},
        "type": what.0, "reason": what.1, "message": format!("{} was told", what.1), "count": 1,
        "firstTimestamp": when.to_string(), "lastTimestamp": when.to_string(),
        "source": {"component": "test"},
    }))
    .unwrap();
    let events: Api<Event> = Api::namespaced(plugin.space.client.clone(), &plugin.space.namespace);
    events.create(&PostParams::default(), &event).await.unwrap();
}

#[tokio::test]
async fn events_of_a_job_and_its_replicas_are_shown_in_order() {
    let plugin = Plugin::new().await;
    let none = plugin.run(&["events", "j"]).await;
    assert_eq!(none.code, Some(1), "{none}");
    let uid = plugin.space.create(&Job::new("j", 1)).await.uid().unwrap();
    let none = plugin.run(&["events", "j"]).await;
    insta::assert_snapshot!(plugin.lasting(&none), @r#"stderr: No events found for job "j" in NAMESPACE namespace."#);

    let job = ("DIJob", "j", uid.as_str());
    tell(
        &plugin,
        ("Pod", "j-collector-abcde", "p"),
        ("Warning", "BackOff"),
        0,
    )
    .await;
    tell(&plugin, job, ("Normal", "Created"), -2).await;
    tell(
        &plugin,
        ("DIJob", "j", "another"),
        ("Normal", "Earlier"),
        -9,
    )
    .await;
    tell(
        &plugin,
        ("Pod", "j-coordinator", "p"),
        ("Normal", "EarlierPod"),
        -9,
    )
    .await;
    tell(
        &plugin,
        ("Pod", "jj-coordinator", "p"),
        ("Normal", "Other"),
        0,
    )
    .await;
    let shown = plugin
        .session(&[
            &["events", "j"][..],
            &["events", "dijob/j", "--types=warning"],
            &["events", "j", "-o", "jsonpath={.items[*].reason}"],
            &["events", "j", "--types=Bad"],
            &["events", "nope"],
        ])
        .await;
    insta::assert_snapshot!(ageless(&plugin.lasting(&shown)));

    let json = plugin.run(&["events", "j", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["items"][0]["kind"], "Event");
    assert_eq!(json["items"][0]["reason"], "Created");
}

#[tokio::test]
async fn a_watch_goes_on_with_what_happens() {
    let plugin = Plugin::new().await;
    let uid = plugin.space.create(&Job::new("j", 1)).await.uid().unwrap();
    tell(&plugin, ("DIJob", "j", &uid), ("Normal", "First"), 0).await;
    let mut watch = plugin
        .command(&[
            "events",
            "j",
            "-w",
            "-o",
            "custom-columns=R:.reason",
            "--no-headers",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut line = async || lines.next_line().await.unwrap().unwrap();
    assert_eq!(line().await, "First");
    tell(&plugin, ("Pod", "elsewhere", "p"), ("Normal", "Not"), 0).await;
    tell(
        &plugin,
        ("Pod", "j-coordinator", "p"),
        ("Normal", "Second"),
        0,
    )
    .await;
    assert_eq!(line().await, "Second");
}
