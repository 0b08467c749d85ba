//! Jobs in queues of Kueue, and jobs that wait for their gang. No Kueue runs: the tests write the
//! status in place of the orchestrator.

use di_apiserver_tests::Job;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::plugin::{Plugin, mask_ages};

/// Creates a job in the queue `team-a` with this status.
async fn create_queued(plugin: &Plugin, name: &str, status: Value) {
    let labels = json!({"labels": {"kueue.x-k8s.io/queue-name": "team-a"}});
    plugin
        .space
        .create(&Job::new(name, 0).metadata(labels))
        .await;
    set_status(plugin, name, status).await;
}

async fn set_status(plugin: &Plugin, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    let jobs = plugin.space.jobs();
    jobs.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": format!("{:.0}", Timestamp::now()),
    })
}

/// Creates a job that waits, a running one with replicas that wait, one that waits for its gang, and
/// one that does not wait.
async fn plugin() -> Plugin {
    let plugin = Plugin::new().await;
    let waits = condition("Admitted", "False", "QueueWaiting", "no quota for GPUs");
    let status = json!({"phase": "Queued", "reason": "QueueWaiting", "conditions": [waits]});
    create_queued(&plugin, "train", status).await;
    let entry = |index: i32, queue: &str| {
        json!({
            "name": format!("eval-collector-aaaa{index}"), "type": "Collector", "origin": "Requested",
            "index": index, "queue": queue, "plannedAt": format!("{:.6}", Timestamp::now()),
        })
    };
    let status = json!({
        "phase": "Running", "reason": "QueueWaiting",
        "queueing": {"workload": "dijob-eval-1f2e3", "clusterQueue": "cq-a"},
        "conditions": [
            condition("Admitted", "True", "QueueAdmitted", "admitted by ClusterQueue cq-a"),
            condition("ReplicasReady", "False", "QueueWaiting", "no quota for CPUs"),
        ],
        "plan": [entry(0, "Admitted"), entry(1, "Waiting"), entry(2, "Waiting")],
    });
    create_queued(&plugin, "eval", status).await;
    let gang = json!({"scheduling": {"gang": {}}});
    plugin.space.create(&Job::new("gang", 0).spec(gang)).await;
    let message = "gang: 1 of 3 placed, waiting for cpu";
    let waits = condition("ReplicasReady", "False", "GangWaiting", message);
    let status = json!({
        "phase": "Created", "reason": "GangWaiting", "conditions": [waits],
        "scheduling": {"group": "dijob-gang-1f2e3", "minMember": 3, "placed": false},
    });
    set_status(&plugin, "gang", status).await;
    plugin.space.create(&Job::new("other", 0)).await;
    plugin
}

#[tokio::test]
async fn queue_lists_what_waits_and_why() {
    let plugin = plugin().await;
    let shown = plugin
        .session(&[
            &["queue"][..],
            &["queue", "-o", "name"],
            &["queue", "dijob/train"],
            &["queue", "eval"],
            &["queue", "gang"],
            &["queue", "other"],
            &["queue", "nope"],
            &["wait", "train", "--for=admitted", "--timeout=0"],
            &["wait", "eval", "--for=admitted"],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));

    let json = plugin.run(&["queue", "eval", "-o", "json"]).await;
    let row: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(row["waitingReplicas"]["collectors"], 2, "{json}");
    assert_eq!(row["position"], Value::Null, "{json}");
    let all = plugin.run(&["queue", "-A"]).await;
    assert!(all.stdout.starts_with("NAMESPACE "), "{all}");
    assert!(all.stdout.contains(&plugin.space.namespace), "{all}");
}

#[tokio::test]
async fn queue_without_waiting_jobs_says_so() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 0)).await;
    let result = plugin.run(&["queue"]).await;
    assert_eq!(
        result.to_string(),
        "stderr: No DIJobs wait in a queue or for their gang.\n",
        "{result}"
    );
    let json = plugin.run(&["queue", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&list["kind"], &list["items"]),
        (&json!("List"), &json!([]))
    );
}

#[tokio::test]
async fn get_and_describe_show_the_queue() {
    let plugin = plugin().await;
    let wide = plugin.run(&["get", "train", "-o", "wide"]).await;
    let mut lines = wide.stdout.lines();
    let header = lines.next().unwrap();
    assert!(header.ends_with("QUEUE"), "{wide}");
    let job = lines.next().unwrap();
    assert!(
        job.contains(" Queued ") && job.ends_with("QueueWaiting   0      team-a"),
        "{wide}"
    );
    let described = plugin.run(&["describe", "eval"]).await;
    for line in [
        "\nQueue:\n",
        "  Cluster Queue:     cq-a\n",
        "  Waiting Replicas:  2 collectors\n",
    ] {
        assert!(described.stdout.contains(line), "{described}");
    }
    let replicas = plugin.run(&["replicas", "list", "eval"]).await;
    assert_eq!(replicas.stdout.matches(" Queued ").count(), 2, "{replicas}");
}
