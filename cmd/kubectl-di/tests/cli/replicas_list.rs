//! `replicas list` in all formats.

use std::process::Stdio;

use di_apiserver_tests::{Job, run};
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
            &["replicas", "list", "j", "-o", "jsonpath={.items[*].role}"],
            &[
                "replicas",
                "list",
                "j",
                "--sort-by=.role",
                "-o",
                "custom-columns=ROLE:.role,N:.index",
            ],
            &["replicas", "list", "j", "-o", "name", "--role=collector"],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));

    let mut watch = plugin
        .command(&["replicas", "list", "j", "-w", "--role=collector", "-o"])
        .arg("custom-columns=NAME:.name,STATUS:.pod.status")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut line = async || lines.next_line().await.unwrap().unwrap();
    let (first, second) = (&status.plan[0].name, &status.plan[1].name);
    assert_eq!(line().await, "NAME                STATUS");
    assert_eq!(line().await, format!("{first}   Pending"));
    assert_eq!(line().await, format!("{second}   Pending"));
    run(&plugin.space.pods(), second).await;
    assert_eq!(
        line().await,
        format!("{second}   Running"),
        "the other has not changed"
    );
}
