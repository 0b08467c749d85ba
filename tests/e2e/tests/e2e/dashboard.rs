//! `kubectl di dashboard` in headless Chromium, while a job trains.

use std::process::Stdio;

use di_api::DIJob;
use di_e2e::{FOREVER, Namespace, job, main_container, training};
use di_python_tests::installed;
use serde_json::json;
use tokio::{process::Command, task::spawn_blocking};

const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard/requirements.txt");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard/browser.py");

/// Returns a training with declared replicas that does not end. It is slow, so that the page is
/// open before the curve has risen.
fn declared_training(name: &str) -> DIJob {
    let flags = ["--declared", "--pace", "8s"];
    let mut job = training(name, &[&flags[..], &FOREVER].concat());
    job.spec.collector.as_mut().unwrap().replicas = 2;
    job.spec.learner.as_mut().unwrap().replicas = 1;
    job
}

/// Returns a job that fits no node.
fn large_job(name: &str) -> DIJob {
    let mut job = job(name, &["hold"]);
    let requests = json!({"requests": {"cpu": "1000"}});
    main_container(&mut job.spec.coordinator.template)["resources"] = requests;
    job
}

#[tokio::test]
async fn browser_shows_training_from_start_to_end() {
    let python = spawn_blocking(|| installed("playwright", REQUIREMENTS)).await;
    let python = python.unwrap().join("bin/python");
    Namespace::with("dashboard", |ns| async move {
        ns.submit(&job("typo", &["hold", "--pcae"])).await;
        ns.submit(&large_job("large")).await;
        ns.submit(&declared_training("train")).await;
        let output = Command::new(python)
            .args(["-B", PROGRAM, &ns.name, "train"])
            // With a folder, it also takes the pictures of the docs.
            .args(std::env::var_os("DI_SCREENSHOTS"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}\n{errors}");
        println!("{printed}");
    })
    .await;
}
