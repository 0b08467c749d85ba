//! Events of a job and its replicas.

use std::process::Stdio;

use di_api::DIJobStatus;
use di_apiserver_tests::Job;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, ResourceExt, api::PostParams};
use regex::Regex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::plugin::{Plugin, add_call, mask_ages};

/// Creates an event of an object, `later` seconds after the creation of the job.
async fn create_event(
    plugin: &Plugin,
    about: (&str, &str, &str),
    (type_, reason): (&str, &str),
    later: i64,
) {
    let (kind, name, uid) = about;
    let job = plugin.space.jobs().get("j").await.unwrap();
    let created = job.creation_timestamp().unwrap().0.as_second();
    let when = jiff::Timestamp::from_second(created + later).unwrap();
    let event: Event = serde_json::from_value(json!({
        "metadata": {"generateName": "e-"},
        "involvedObject": {"kind": kind, "name": name, "uid": uid, "namespace": plugin.space.namespace},
        "type": type_, "reason": reason, "message": format!("{reason} was reported"), "count": 1,
        "firstTimestamp": when.to_string(), "lastTimestamp": when.to_string(),
        "source": {"component": "test"},
    }))
    .unwrap();
    let events: Api<Event> = Api::namespaced(plugin.space.client.clone(), &plugin.space.namespace);
    events.create(&PostParams::default(), &event).await.unwrap();
}

#[tokio::test]
async fn events_of_a_job_and_its_replicas_are_ordered() {
    let plugin = Plugin::new().await;
    let none = plugin.run(&["events", "j"]).await;
    assert_eq!(none.code, Some(1), "{none}");
    let uid = plugin.space.create(&Job::new("j", 1)).await.uid().unwrap();
    let none = plugin.run(&["events", "j"]).await;
    insta::assert_snapshot!(plugin.normalize(&none), @r#"stderr: No events found for job "j" in NAMESPACE namespace."#);

    let job = ("DIJob", "j", uid.as_str());
    create_event(
        &plugin,
        ("Pod", "j-collector-abcde", "p"),
        ("Warning", "BackOff"),
        0,
    )
    .await;
    create_event(&plugin, job, ("Normal", "Created"), -2).await;
    create_event(
        &plugin,
        ("DIJob", "j", "another"),
        ("Normal", "Earlier"),
        -9,
    )
    .await;
    create_event(
        &plugin,
        ("Pod", "j-coordinator", "p"),
        ("Normal", "EarlierPod"),
        -9,
    )
    .await;
    create_event(
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
            &["events", "j", "--types=Bad"],
            &["events", "nope"],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));

    let json = plugin.run(&["events", "j", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["items"][0]["kind"], "Event");
    assert_eq!(json["items"][0]["reason"], "Created");
}

#[tokio::test]
async fn event_watch_prints_new_events() {
    let plugin = Plugin::new().await;
    let uid = plugin.space.create(&Job::new("j", 1)).await.uid().unwrap();
    create_event(&plugin, ("DIJob", "j", &uid), ("Normal", "First"), 0).await;
    let mut watch = plugin
        .command(&["events", "j", "-w", "--no-headers"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // The reason is the third column.
    let mut reason = async || {
        let line = lines.next_line().await.unwrap().unwrap();
        line.split_whitespace().nth(2).unwrap().to_owned()
    };
    assert_eq!(reason().await, "First");
    create_event(&plugin, ("Pod", "elsewhere", "p"), ("Normal", "Not"), 0).await;
    create_event(
        &plugin,
        ("Pod", "j-coordinator", "p"),
        ("Normal", "Second"),
        0,
    )
    .await;
    assert_eq!(reason().await, "Second");
}

#[tokio::test]
async fn events_without_a_name_include_every_job() {
    let plugin = Plugin::new().await;
    let mut all = String::new();
    add_call(&mut all, "events", &plugin.run(&["events"]).await);
    let uid = plugin.space.create(&Job::new("j", 1)).await.uid().unwrap();
    for (about, reason, later) in [
        (("DIJob", "j", uid.as_str()), "Created", -4),
        (("Pod", "j-collector-abcde", "p"), "Started", -3),
        (("DIJob", "gone", "g"), "Deleted", -2),
        (("Pod", "gone-coordinator", "p"), "Killing", -1),
        (("Pod", "other-coordinator", "p"), "Other", 0),
    ] {
        create_event(&plugin, about, ("Normal", reason), later).await;
    }
    let result = plugin.run(&["events"]).await;
    add_call(&mut all, "events", &result);
    let mut everywhere = plugin.run(&["events", "-A"]).await;
    // Ignore the jobs of other tests.
    let namespace = &plugin.space.namespace;
    let is_ours = |line: &&str| line.starts_with("NAMESPACE") || line.starts_with(namespace);
    let lines: Vec<_> = everywhere.stdout.lines().filter(is_ours).collect();
    // Columns are wider if other namespaces have longer names.
    let gaps = Regex::new(" {3,}").unwrap();
    everywhere.stdout = gaps.replace_all(&(lines.join("\n") + "\n"), "   ").into();
    add_call(&mut all, "events -A", &everywhere);
    add_call(
        &mut all,
        "events j -A",
        &plugin.run(&["events", "j", "-A"]).await,
    );
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&all)));
}

#[tokio::test]
async fn watch_ends_when_stdout_is_closed() {
    let plugin = Plugin::new().await;
    let manager = plugin.space.manager("manager");
    plugin.space.create(&Job::new("j", 1)).await;
    let planned = |status: &DIJobStatus| !status.plan.is_empty();
    plugin.space.until("j", "it is planned", planned).await;
    plugin.space.until_event("j", "SuccessfulCreate").await;
    manager.stop().await;
    for watch in ["events j -w", "events -w", "replicas list j -w"] {
        let line = format!("{{ kubectl-di {watch}; echo watched: $? >&2; }} | head -1");
        let terminal = plugin.shell(100, 10, &line);
        terminal.until_ended(0).await;
        let screen = terminal.screen();
        let (shown, _) = screen.split_once("\nended").unwrap();
        let [headers, code] = shown.lines().collect::<Vec<_>>()[..] else {
            panic!("{watch}: {screen}");
        };
        assert!(headers.contains("   "), "{watch}: {screen}");
        assert_eq!(code, "watched: 0", "{watch}: {screen}");
    }
}
