//! The Python client of `python/` with the endpoint: `python_client.py`.

use di_api::names;
use di_apiserver_tests::{Endpoint, Job, Kubelet, Kueue, Space, queued_job, wait_for_objects};
use tokio::process::Command;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/suite/endpoint/python_client.py"
);
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/src");

/// Runs the script with the environment of a pod, and returns the lines that it prints.
async fn run_script(space: &Space, endpoint: &Endpoint, pod: &str) -> Vec<String> {
    let pod = space.pods().get(pod).await.unwrap();
    let variables = pod.spec.unwrap().containers.swap_remove(0).env.unwrap();
    let variables = variables.into_iter();
    let variables = variables.map(|variable| (variable.name, variable.value.unwrap()));
    let mut command = Command::new("python3");
    command.arg(SCRIPT).env("PYTHONPATH", PACKAGE);
    command.envs(variables).kill_on_drop(true);
    // The pod has the address of an installed endpoint.
    command.env(names::env::SERVER_URL, endpoint.address().to_string());
    let output = command.output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn python_client_changes_and_watches_replicas() {
    let space = Space::new().await;
    // Room for a coordinator.
    let kueue = Kueue::start(&space, 1).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    for job in [
        Job::new("suspended", 0).suspended(),
        queued_job("queued", 0),
        Job::new("job", 0).learners(0),
    ] {
        space.create(&job).await;
    }
    for job in ["queued", "job"] {
        space.until_settled(job).await;
    }
    let mut pods = run_script(&space, &endpoint, "job-coordinator").await;
    endpoint.until_listed("job", &pods).await;
    pods.push("job-coordinator".to_owned());
    wait_for_objects("pods", &pods, async || space.pods_of("job").await).await;
    manager.stop().await;
    kueue.check().await;
}
