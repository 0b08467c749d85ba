//! Updates of jobs in each phase, validated by the webhooks.

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, Space, Webhooks, exit, template};
use kube::{
    Error,
    api::{Patch, PatchParams},
    core::Status,
};
use serde_json::{Value, json};

use crate::{
    suspend::set_suspended,
    webhooks::validation::{VERSIONS, causes},
};

const STARTED: &str = "Forbidden: may not be changed once the job has started; suspend the job and wait for phase Suspended, or create a new job";
const ENDED: &str = "Forbidden: may not be changed once the job has ended (only replicas, suspend and ttlSecondsAfterFinished may); create a new job instead";

/// Updates of one field each, and whether they are allowed once the job has started and once it has
/// ended.
fn field_changes() -> [(&'static str, Value, bool, bool); 13] {
    let mut other = template();
    other["spec"]["containers"][0]["image"] = json!("other");
    let role = json!({"template": other});
    let group = json!([{"name": "big", "replicas": 1, "resources": {"cpus": "2"}}]);
    let volume = json!([{"name": "v", "emptyDir": {}}]);
    let of = |field: &str, value: Value| json!({"spec": {field: value}});
    [
        (
            "spec.coordinator.template",
            of("coordinator", role.clone()),
            false,
            false,
        ),
        (
            "spec.collector.template",
            of("collector", role.clone()),
            false,
            false,
        ),
        ("spec.learner.template", of("learner", role), false, false),
        ("spec.volumes", of("volumes", volume), false, false),
        (
            "spec.priorityClassName",
            of("priorityClassName", json!("high")),
            false,
            false,
        ),
        ("spec.group", of("group", json!("g")), false, false),
        (
            "spec.collector.replicas",
            of("collector", json!({"replicas": 7})),
            true,
            true,
        ),
        (
            "spec.collector.groups",
            of("collector", json!({"groups": group})),
            true,
            false,
        ),
        (
            "spec.activeDeadlineSeconds",
            of("activeDeadlineSeconds", json!(600)),
            true,
            false,
        ),
        (
            "spec.cleanPodPolicy",
            of("cleanPodPolicy", json!("All")),
            true,
            false,
        ),
        (
            "spec.backoffLimit",
            of("backoffLimit", json!(3)),
            true,
            false,
        ),
        (
            "spec.ttlSecondsAfterFinished",
            of("ttlSecondsAfterFinished", json!(3600)),
            true,
            true,
        ),
        (
            "metadata",
            json!({"metadata": {"labels": {"team": "rl"}, "finalizers": ["tests.opendilab.org/hold"]}}),
            true,
            true,
        ),
    ]
}

/// Returns the rejection of an update, or `None` if it is allowed. It is a dry run.
async fn rejection(space: &Space, version: &str, job: &str, change: &Value) -> Option<Box<Status>> {
    let dry = PatchParams::default().dry_run();
    let jobs = space.dynamic_jobs(version);
    match jobs.patch(job, &dry, &Patch::Merge(change)).await {
        Ok(_) => None,
        Err(Error::Api(status)) => Some(status),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn field_update_is_allowed_by_job_phase() {
    let space = Space::new().await;
    let webhooks = Webhooks::start(&space).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let jobs = ["running", "suspended", "ended"];
    for name in jobs {
        space.create(&Job::new(name, 1).learners(1)).await;
    }
    for name in jobs {
        space.until_settled(name).await;
    }
    set_suspended(&space, "suspended", true).await;
    exit(&space.pods(), "ended-coordinator", 0).await;
    space.until_phase("suspended", Phase::Suspended).await;
    space.until_phase("ended", Phase::Succeeded).await;

    for (field, change, once_started, once_ended) in field_changes() {
        for (job, allowed, why) in [
            ("running", once_started, STARTED),
            ("suspended", true, ""),
            ("ended", once_ended, ENDED),
        ] {
            for version in VERSIONS {
                let answer = rejection(&space, version, job, &change).await;
                let at = format!("{field} of {job} in {version}: {answer:?}");
                assert_eq!(answer.is_none(), allowed, "{at}");
                let Some(status) = answer else { continue };
                let form = (status.code, status.reason.as_str());
                assert_eq!(form, (422, "Invalid"), "{at}");
                assert_eq!(causes(&status), [format!("{field}: {why}")], "{at}");
            }
        }
    }
    // `suspend` may change in each phase; an ended job ignores it.
    for (job, suspend) in [("running", true), ("suspended", false), ("ended", true)] {
        let change = json!({"spec": {"suspend": suspend}});
        let answer = rejection(&space, VERSIONS[0], job, &change).await;
        assert!(answer.is_none(), "{job}: {answer:?}");
    }
    manager.stop().await;
    webhooks.stop().await;
}

#[tokio::test]
async fn status_update_ignores_invalid_spec_and_webhook_outage() {
    let space = Space::new().await;
    let bad = Job::new("bad", 0)
        .with(|spec| spec["coordinator"]["template"]["spec"]["containers"][0]["name"] = "x".into());
    space.create(&bad).await;
    let mut webhooks = Webhooks::start(&space).await;
    let change = json!({"spec": {"backoffLimit": 2}});
    let change_of_status = json!({"status": {"reason": "Changed"}});
    for version in VERSIONS {
        let status = rejection(&space, version, "bad", &change).await.unwrap();
        assert_eq!(status.code, 422, "{status:?}");
        let api = space.dynamic_jobs(version);
        api.patch_status(
            "bad",
            &PatchParams::default(),
            &Patch::Merge(&change_of_status),
        )
        .await
        .unwrap();
    }

    webhooks.stop_all().await;
    let status = rejection(&space, VERSIONS[0], "bad", &change)
        .await
        .unwrap();
    assert_eq!(status.code, 500, "{status:?}");
    let manager = space.manager("manager");
    let status = space.until_phase("bad", Phase::Failed).await;
    assert_eq!(status.reason.as_deref(), Some("InvalidSpec"));
    manager.stop().await;
}
