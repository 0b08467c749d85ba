use di_api::names::kueue::QUEUE_LABEL;
use di_client::{WaitingReplicas, join_plan_with_pods};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::output::table::Table;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn job(name: &str, status: serde_json::Value) -> Job {
    let created = json!({"creationTimestamp": "2026-01-01T00:57:30Z"});
    let job = di_fixtures::Job::test().named(name).metadata(created);
    Job::from(job.status(status).json())
}

fn table(namespaces: bool, wide: bool) -> String {
    let mut jobs = [
        job(
            "cartpole",
            json!({"phase": "Running", "collectorsReady": "2/3", "learnersReady": "1/1", "restarts": 1, "reason": "ImagePullBackOff"}),
        ),
        job("just-created", json!(null)),
    ];
    let labels = jobs[0].metadata.labels.get_or_insert_default();
    labels.insert(QUEUE_LABEL.to_owned(), "team-a".to_owned());
    let rows = jobs.map(|job| JobRow::new(&job, now()).into_cells(namespaces, wide));
    Table::new(&JobRow::column_headers(namespaces, wide), true).render(&rows)
}

#[test]
fn job_table_has_the_columns_of_kubectl() {
    insta::assert_snapshot!(table(false, false), @r"
    NAME           PHASE     COLLECTORS   LEARNERS   RESTARTS   AGE
    cartpole       Running   2/3          1/1        1          2m30s
    just-created                                     0          2m30s
    ");
    insta::assert_snapshot!(table(true, true), @r"
    NAMESPACE   NAME           PHASE     COLLECTORS   LEARNERS   RESTARTS   AGE     REASON             GPUS   QUEUE
    rl          cartpole       Running   2/3          1/1        1          2m30s   ImagePullBackOff   0      team-a
    rl          just-created                                     0          2m30s                      0      <none>
    ");
}

#[test]
fn rows_that_differ_only_in_age_are_equal() {
    let job = job("cartpole", json!({"phase": "Running"}));
    let later = "2026-01-01T02:00:00Z".parse().unwrap();
    assert!(JobRow::new(&job, now()).equals_except_age(&JobRow::new(&job, later)));
    let ended = self::job("cartpole", json!({"phase": "Succeeded"}));
    assert!(!JobRow::new(&job, now()).equals_except_age(&JobRow::new(&ended, now())));
}

#[test]
fn replica_table_includes_replicas_without_pods() {
    let job = job(
        "j",
        json!({"plan": [
            {"name": "j-collector-ccccc", "type": "Collector", "origin": "Declared", "index": 0, "replaces": "j-collector-ddddd"},
            {"name": "j-collector-bbbbb", "type": "Collector", "origin": "Requested", "index": 1, "plannedAt": "2026-01-01T00:59:50Z"},
        ]}),
    );
    let limits = json!({"limits": {"nvidia.com/gpu": "2"}});
    let pod = di_fixtures::Pod::test("j-collector-ccccc", "collector")
        .metadata(json!({"creationTimestamp": "2026-01-01T00:58:00Z"}))
        .spec(json!({"nodeName": "n1", "containers": [{"name": "di-container", "resources": limits}]}))
        .status(json!({"phase": "Running", "containerStatuses": [
            {"name": "di-container", "ready": true, "restartCount": 2,
             "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
        ]}));
    let replicas = join_plan_with_pods(&job, &[pod.build()]);
    let shown = |wide| {
        let rows: Vec<_> = replicas
            .iter()
            .map(|replica| replica_cells(replica, now(), wide))
            .collect();
        Table::new(&replica_headers(wide), true).render(&rows)
    };
    insta::assert_snapshot!(shown(false), @r"
    NAME                ROLE        INDEX   ORIGIN      STATUS    READY    RESTARTS   AGE
    j-collector-ccccc   collector   0       Declared    Running   1/1      2          2m
    j-collector-bbbbb   collector   1       Requested   Planned   <none>   <none>     10s
    ");
    insta::assert_snapshot!(shown(true), @r"
    NAME                ROLE        INDEX   ORIGIN      STATUS    READY    RESTARTS   AGE   NODE     GPUS     LAST EXIT         URL                          REPLACES
    j-collector-ccccc   collector   0       Declared    Running   1/1      2          2m    n1       2        OOMKilled (137)   j-collector-ccccc.rl:22270   j-collector-ddddd
    j-collector-bbbbb   collector   1       Requested   Planned   <none>   <none>     10s   <none>   <none>   <none>            j-collector-bbbbb.rl:22270   <none>
    ");
}

#[test]
fn queue_table_shows_what_waits_and_why() {
    let row = |name: &str, collectors: usize, message: &str| QueueRow {
        namespace: "rl".to_owned(),
        name: name.to_owned(),
        queue: Some("team-a".to_owned()),
        waits: true,
        waits_for_gang: false,
        waiting_replicas: WaitingReplicas {
            collectors,
            learners: 0,
        },
        position: None,
        since: Some(Time("2026-01-01T00:50:00Z".parse().unwrap())),
        reason: Some("QueueWaiting".to_owned()),
        message: message.to_owned(),
        cluster_queue: None,
    };
    let mut queued = row("queued", 0, "no\nquota");
    queued.position = Some(0);
    let mut admitted = row("admitted", 0, "");
    admitted.waits = false;
    admitted.since = None;
    admitted.reason = Some("QueueAdmitted".to_owned());
    admitted.cluster_queue = Some("cq-a".to_owned());
    let mut gang = row("gang", 0, "gang: 1 of 3 placed");
    gang.waits_for_gang = true;
    gang.queue = None;
    gang.reason = Some("GangWaiting".to_owned());
    let rows = [
        queued,
        row("train", 3, "no quota"),
        row("eval", 1, ""),
        admitted,
        gang,
    ];
    let shown = |namespaces, admission| {
        let cells = |row| queue_cells(row, now(), namespaces, admission);
        let rows: Vec<_> = rows.clone().map(cells).to_vec();
        Table::new(&queue_headers(namespaces, admission), true).render(&rows)
    };
    insta::assert_snapshot!(shown(true, false), @r"
    NAMESPACE   NAME       QUEUE    POSITION    WAITING   REASON          MESSAGE
    rl          queued     team-a   0           10m       QueueWaiting    no quota
    rl          train      team-a   <unknown>   10m       QueueWaiting    3 collectors wait: no quota
    rl          eval       team-a   <unknown>   10m       QueueWaiting    1 collector waits
    rl          admitted   team-a   <none>      <none>    QueueAdmitted
    rl          gang       <none>   <none>      10m       GangWaiting     gang: 1 of 3 placed
    ");
    insta::assert_snapshot!(shown(false, true), @r"
    NAME       QUEUE    POSITION    WAITING   REASON          MESSAGE                       ADMITTED BY
    queued     team-a   0           10m       QueueWaiting    no quota                      <none>
    train      team-a   <unknown>   10m       QueueWaiting    3 collectors wait: no quota   <none>
    eval       team-a   <unknown>   10m       QueueWaiting    1 collector waits             <none>
    admitted   team-a   <none>      <none>    QueueAdmitted                                 cq-a
    gang       <none>   <none>      10m       GangWaiting     gang: 1 of 3 placed           <none>
    ");
}
