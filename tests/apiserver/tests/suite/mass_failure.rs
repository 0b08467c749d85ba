//! Many replicas that fail at the same time.

use di_api::DIJobStatus;
use di_apiserver_tests::{Job, Kubelet, Space, eventually, exit};
use di_plan::MAX_FAILURES_BYTES;
use futures::{StreamExt, stream};

/// Collectors of the job.
const COLLECTORS: usize = 100;
/// Size limit of a request to etcd.
const MAX_REQUEST_BYTES: usize = 1536 << 10;

async fn status_of(space: &Space) -> DIJobStatus {
    let job = space.jobs().get("many").await.unwrap();
    job.status.unwrap_or_default()
}

async fn wait_until_ready(space: &Space, failures: usize) -> DIJobStatus {
    eventually("all collectors are ready", async || {
        let status = status_of(space).await;
        let recorded: i32 = status.failures.iter().map(|failure| failure.count).sum();
        let is_ready = status.collectors_ready == Some(format!("{COLLECTORS}/{COLLECTORS}"));
        if is_ready && usize::try_from(recorded) == Ok(failures) {
            Ok(status)
        } else {
            Err(format!(
                "{:?}, {recorded} failures",
                status.collectors_ready
            ))
        }
    })
    .await
}

fn status_writes(metrics: &str) -> usize {
    let series = r#"di_controller_writes_total{verb="patch",resource="dijobs/status"} "#;
    let value = metrics.lines().find_map(|line| line.strip_prefix(series));
    value.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn mass_failure_is_recorded_in_few_small_writes() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("many", COLLECTORS)).await;
    let ready = wait_until_ready(&space, 0).await;

    let before = status_writes(&manager.metrics());
    let pods = space.pods();
    stream::iter(&ready.plan)
        .for_each_concurrent(16, |entry| exit(&pods, &entry.name, 3))
        .await;
    let status = wait_until_ready(&space, COLLECTORS).await;
    let writes = status_writes(&manager.metrics()) - before;
    println!("{writes} status writes for {COLLECTORS} failures");
    assert!(writes < COLLECTORS / 3, "{writes} status writes");

    let [failure] = &status.failures[..] else {
        panic!("equal failures are one record: {:?}", status.failures);
    };
    assert_eq!(failure.exit_code, Some(3));
    let failures = serde_json::to_vec(&status.failures).unwrap().len();
    assert!(
        failures <= MAX_FAILURES_BYTES,
        "{failures} bytes of failures"
    );
    let size = serde_json::to_vec(&status).unwrap().len();
    assert!(size < MAX_REQUEST_BYTES, "{size} bytes of status");
    manager.stop().await;
}
