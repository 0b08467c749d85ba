//! A manager process without other parts, for tests that kill it. Its arguments are the URL of the
//! API server and the timeout of a call in milliseconds.

#![allow(clippy::unwrap_used)] // a program of tests

use std::{io::Read, thread, time::Duration};

use di_controller::{Metrics, Settings, run};
use kube::Config;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let config = Config::new(args.next().unwrap().parse().unwrap());
    let settings = Settings {
        call_timeout: Duration::from_millis(args.next().unwrap().parse().unwrap()),
        ..Settings::default()
    };
    rustls::crypto::ring::default_provider()
        .install_default()
        .unwrap();
    let client = di_cache::build_client(config).unwrap();
    // Run until the parent closes stdin, which also happens when the parent is killed.
    let (alone, is_alone) = oneshot::channel();
    thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        alone.send(()).ok();
    });
    let shutdown = async {
        is_alone.await.ok();
    };
    let metrics = Metrics::new(&mut Registry::default());
    run(client, settings, metrics, shutdown).await.unwrap();
}
