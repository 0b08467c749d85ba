//! `pause`, `start` and `status` through the proxy of the API server, without a kubelet.
//!
//! The proxy rejects loopback addresses, so the workers listen on an address of the machine.

use std::net::{IpAddr, UdpSocket};

use di_api::Phase;
use di_apiserver_tests::{Job, give_address, run};
use di_worker_lib::protocol::idle::run_idle;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    exec::grant_reading,
    plugin::{Plugin, add_call},
};

/// The address of the machine for outgoing connections; sends nothing.
fn address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let routed = socket.connect("198.51.100.1:9");
    routed.expect("the machine has a non-loopback address");
    socket.local_addr().unwrap().ip()
}

/// Serves HTTP without lifecycle handles.
async fn without_handles(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 4096];
        let answer = b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        if stream
            .read(&mut request)
            .await
            .is_ok_and(|length| length > 0)
        {
            stream.write_all(answer).await.ok();
        }
    }
}

/// Creates a job: the coordinator has handles, the collector has none, the learner does not listen.
async fn job(plugin: &Plugin) -> u16 {
    let address = address();
    let lives = TcpListener::bind((address, 0)).await.unwrap();
    let none = TcpListener::bind((address, 0)).await.unwrap();
    let [coordinator, collector] =
        [&lives, &none].map(|listener| listener.local_addr().unwrap().port());
    tokio::spawn(run_idle(lives, std::future::pending()));
    tokio::spawn(without_handles(none));
    let job = Job::new("j", 1).learners(1).with(|spec| {
        // Nothing listens at port 1.
        for (role, port) in [
            ("coordinator", coordinator),
            ("collector", collector),
            ("learner", 1),
        ] {
            let container = &mut spec[role]["template"]["spec"]["containers"][0];
            container["ports"] = json!([{"name": "di-port", "containerPort": port}]);
        }
    });
    let manager = plugin.space.manager("manager");
    plugin.space.create(&job).await;
    plugin
        .space
        .until("j", "pods are made", |status| {
            status.plan.len() == 2 && status.plan.iter().all(|entry| entry.uid.is_some())
        })
        .await;
    plugin.space.until_phase("j", Phase::Created).await;
    manager.stop().await;
    coordinator
}

#[tokio::test]
async fn lifecycle_handles_of_every_replica_are_called() {
    let plugin = Plugin::new().await;
    let port = job(&plugin).await;
    let mut all = String::new();
    let mut call = async |words: &[&str]| {
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    };
    call(&["status", "missing"]).await;
    call(&["pause", "j"]).await;
    let pods = plugin.space.pods();
    for name in plugin.space.pods_of("j").await.keys() {
        run(&pods, name).await;
        give_address(&pods, name, &address().to_string()).await;
    }
    call(&["status", "j"]).await;
    call(&["pause", "j", "--dry-run=client"]).await;
    call(&["pause", "j", "--dry-run=server"]).await;
    call(&["pause", "j", "--dry-run=server", "-o=name"]).await;
    call(&["pause", "dijob/j"]).await;
    call(&["status", "j", "-o", "wide", "--no-headers"]).await;
    let report = plugin.run(&["status", "j", "-o=json"]).await;
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let first = &report["items"][0];
    assert_eq!(
        (&first["name"], &first["status"], &first["running"]),
        (&json!("j-coordinator"), &json!("paused"), &json!(false))
    );
    call(&["start", "j", "--timeout=0", "-o=name"]).await;
    call(&["status", "j", "-o=name"]).await;
    plugin.run(&["suspend", "j"]).await;
    call(&["pause", "j"]).await;
    plugin.run(&["resume", "j"]).await;
    grant_reading(&plugin).await;
    call(&["status", "j", "--as=reader"]).await;
    call(&["pause", "j", "--as=reader"]).await;
    let all = plugin.normalize(&all);
    let all = all.replace(&address().to_string(), "ADDRESS");
    insta::assert_snapshot!(all.replace(&format!(":{port}\""), ":PORT\""));
}
