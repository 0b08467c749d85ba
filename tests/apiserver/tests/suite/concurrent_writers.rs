//! Several clients that keep writing the same job.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use di_api::DIJobStatus;
use di_apiserver_tests::{Job, Kubelet, Space, exit};
use futures::future::join_all;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

const WRITERS: usize = 8;
/// Interval of one writer; all together write about 100 times a second.
const WRITE_INTERVAL: Duration = Duration::from_millis(80);
/// Writers run for at least this time and this number of writes.
const MIN_DURATION: Duration = Duration::from_secs(3);
const MIN_WRITES: usize = 6;

/// Writes an annotation of its own repeatedly, and returns its last value.
async fn write_annotations(space: &Space, job: &str, writer: usize) -> (String, String) {
    let key = format!("tests.opendilab.org/writer-{writer}");
    let params = PatchParams::default();
    let mut ticks = interval(WRITE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < MIN_DURATION || count < MIN_WRITES {
        ticks.tick().await;
        count += 1;
        let patch = json!({"metadata": {"annotations": {&key: count.to_string()}}});
        let patch = Patch::Merge(patch);
        space.jobs().patch(job, &params, &patch).await.unwrap();
    }
    (key, count.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn f4_concurrent_job_writers_lose_no_update() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("stormy", 3)).await;
    let writers = (0..WRITERS).map(|writer| write_annotations(&space, "stormy", writer));
    let whole = |s: &DIJobStatus, lost: usize| {
        let gone = s.plan.iter().filter(|entry| !entry.is_wanted());
        gone.count() == lost && s.collectors_ready.as_deref() == Some("3/3")
    };
    // Two collectors fail meanwhile, so that the manager must write.
    let losses = async {
        for lost in 0..2 {
            let all = |s: &DIJobStatus| whole(s, lost);
            let status = space.until("stormy", "all are ready", all).await;
            exit(&space.pods(), &status.plan[lost].name, 1).await;
        }
    };
    let (written, ()) = tokio::join!(join_all(writers), losses);
    let replaced = |s: &DIJobStatus| whole(s, 2);
    space.until("stormy", "both are replaced", replaced).await;
    let job = space.jobs().get("stormy").await.unwrap();
    let written: BTreeMap<_, _> = written.into_iter().collect();
    assert_eq!(*job.annotations(), written);
    manager.stop().await;
}
