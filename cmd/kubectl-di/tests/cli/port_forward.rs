//! Which ports `port-forward` listens at and leads to; what goes through them is tested in `tests/e2e`.

use std::process::Stdio;

use di_apiserver_tests::{Job, run};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::plugin::Plugin;

#[tokio::test]
async fn ports_may_be_named() {
    let plugin = Plugin::new().await;
    let manager = plugin.space.manager("manager");
    plugin.space.create(&Job::new("j", 0)).await;
    plugin.space.until_phase("j", di_api::Phase::Created).await;
    manager.stop().await;
    run(&plugin.space.pods(), "j-coordinator").await;
    let mut forward = plugin
        .command(&["port-forward", "j", ":di-port", "--address=127.0.0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.starts_with("Forwarding from 127.0.0.1:"), "{line}");
    assert!(line.ends_with(" -> 22273"), "{line}");
    let said = plugin.run(&["port-forward", "j", "8080:web"]).await;
    insta::assert_snapshot!(said, @r"
    stderr: error: Pod 'j-coordinator' does not have a named port 'web'
    exit code 1
    ");
}
