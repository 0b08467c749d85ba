//! `replicas list` in all formats.

use std::process::Stdio;

use di_apiserver_tests::{Job, run};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::plugin::{Plugin, mask_ages};

#[tokio::test]
async fn replicas_are_listed_in_every_format_and_watched() {
    let plugin = Plugin::new().await;
    let manager = plugin.space.manager("manager");
    plugin.space.create(&Job::new("j", 2)).await;
    let status = plugin
        .space
        .until("j", "pods are made", |status| {
            status.plan.len() == 2 && status.plan.iter().all(|entry| entry.uid.is_some())
        })
        .await;
    plugin.space.until_phase("j", di_api::Phase::Created).await;
    manager.stop().await;
    let shown = plugin
        .session(&[
            &["replicas", "list", "j"][..],
            &["replicas", "list", "j", "--role=coordinator", "-o", "wide"],
            &["replicas", "list", "j", "-o", "name", "--role=collector"],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));
    let json = plugin.run(&["replicas", "list", "j", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let roles = json["items"].as_array().unwrap().iter();
    let roles: Vec<_> = roles.map(|item| item["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["Coordinator", "Collector", "Collector"]);

    let mut watch = plugin
        .command(&["replicas", "list", "j", "-w", "--role=collector"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // The name and the status of a line.
    let mut line = async || {
        let line = lines.next_line().await.unwrap().unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        format!("{} {}", words[0], words[4])
    };
    let (first, second) = (&status.plan[0].name, &status.plan[1].name);
    assert_eq!(line().await, "NAME STATUS");
    assert_eq!(line().await, format!("{first} Pending"));
    assert_eq!(line().await, format!("{second} Pending"));
    run(&plugin.space.pods(), second).await;
    assert_eq!(
        line().await,
        format!("{second} Running"),
        "the other has not changed"
    );
}
