//! The ports of `port-forward`; the forwarded data is tested in `tests/e2e`.

use std::process::Stdio;

use di_apiserver_tests::{Job, run};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::Command,
};

use crate::plugin::Plugin;

const FORWARD: [&str; 4] = ["port-forward", "j", ":di-port", "--address=127.0.0.1"];

/// Creates a job with a coordinator that is running according to its status.
async fn plugin() -> Plugin {
    let plugin = Plugin::new().await;
    let manager = plugin.space.manager("manager");
    plugin.space.create(&Job::new("j", 0)).await;
    plugin.space.until_phase("j", di_api::Phase::Created).await;
    manager.stop().await;
    run(&plugin.space.pods(), "j-coordinator").await;
    plugin
}

#[tokio::test]
async fn port_forward_accepts_port_names() {
    let plugin = plugin().await;
    let (_forward, mut lines) = plugin.start(&FORWARD);
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.starts_with("Forwarding from 127.0.0.1:"), "{line}");
    assert!(line.ends_with(" -> 22273"), "{line}");
    let result = plugin.run(&["port-forward", "j", "8080:web"]).await;
    insta::assert_snapshot!(result, @r"
    stderr: error: Pod 'j-coordinator' does not have a named port 'web'
    exit code 1
    ");
}

#[tokio::test]
async fn port_forward_ignores_sighup_under_nohup() {
    let plugin = plugin().await;
    let mut forward = Command::new("nohup")
        .arg(env!("CARGO_BIN_EXE_kubectl-di"))
        .args(FORWARD)
        .env("HOME", plugin.dir())
        .env("KUBECONFIG", plugin.dir().join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = forward.id().unwrap().to_string();
    let send = async |signal: &str| {
        let sent = Command::new("kill").args([signal, &pid]).status().await;
        assert!(sent.unwrap().success(), "{signal}");
    };
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let mut line = async || lines.next_line().await.unwrap().unwrap();
    let line_text = line().await;
    let address = line_text.split(' ').nth(2).unwrap();
    for _ in 0..2 {
        // Signals are also handled while connections are accepted.
        TcpStream::connect(address).await.unwrap();
        let line_text = line().await;
        assert!(
            line_text.starts_with("Handling connection for "),
            "{line_text}"
        );
        send("-HUP").await;
    }
    send("-INT").await;
    assert_eq!(forward.wait().await.unwrap().code(), Some(0));
}
