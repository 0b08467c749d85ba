//! Name conflicts with objects of other owners, and jobs that are being deleted.

use std::{collections::BTreeSet, time::Duration};

use di_api::{ConditionType, DIJobStatus, Phase, find_condition};
use di_apiserver_tests::{
    Endpoint, Job, Kubelet, Space, eventually, remove, template, wait_for_objects,
};
use di_replicas::Settings;
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

#[tokio::test]
async fn f7_pods_of_previous_job_are_not_adopted_or_deleted() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let old = space.create(&Job::new("again", 2)).await;
    space.until_settled("again").await;
    // No garbage collector runs, so all objects except the job remain.
    remove(&space.jobs(), "again").await;
    let pods = space.pods_of("again").await;
    let services = space.services_of("again").await;
    assert_eq!((pods.len(), services.len()), (3, 3));

    let new = space.create(&Job::new("again", 2)).await;
    assert_ne!(old.uid(), new.uid());
    let taken = |s: &DIJobStatus| s.reason.as_deref() == Some("PreviousJobTerminating");
    let status = space
        .until("again", "the terminating job is reported", taken)
        .await;
    assert_eq!(status.phase, None);
    assert!(
        status
            .plan
            .iter()
            .all(|entry| !pods.contains_key(&entry.name)),
        "{status:?}"
    );
    space.until_event("again", "PreviousJobTerminating").await;
    space.create(&Job::new("other", 1)).await;
    space.until_settled("other").await;
    let now = space.pods_of("again").await;
    for (name, pod) in &pods {
        assert_eq!(now[name].metadata.uid, pod.metadata.uid, "{name}");
        assert_eq!(
            now[name].metadata.owner_references, pod.metadata.owner_references,
            "{name}"
        );
        assert_eq!(now[name].metadata.deletion_timestamp, None, "{name}");
    }
    let writes = space.writes_of("manager").await;
    let deleted: Vec<_> = writes.iter().filter(|w| w.verb == "delete").collect();
    assert!(deleted.is_empty(), "{deleted:?}");

    for name in pods.keys() {
        remove(&space.pods(), name).await;
    }
    for name in services.keys() {
        remove(&space.services(), name).await;
    }
    let status = space.until_settled("again").await;
    assert_eq!(status.reason, None);
    let warnings = space.warnings_of("again").await;
    let patient = ["PreviousJobTerminating", "NameConflict"].map(str::to_owned);
    assert!(
        !warnings.iter().any(|warning| patient.contains(warning)),
        "{warnings:?}"
    );
    let coordinator = &space.pods_of("again").await["again-coordinator"];
    assert_eq!(coordinator.owner_references()[0].uid, new.uid().unwrap());
    manager.stop().await;
}

#[tokio::test]
async fn name_conflict_is_reported_until_name_is_free() {
    let space = Space::new().await;
    let space = space.without_random_faults("of two conflicts the first that is tried is reported");
    let mut pod: Pod = serde_json::from_value(template()).unwrap();
    pod.metadata.name = Some("taken-coordinator".to_owned());
    let params = PostParams::default();
    let theirs = space.pods().create(&params, &pod).await.unwrap();
    let service =
        json!({"metadata": {"name": "taken-coordinator"}, "spec": {"ports": [{"port": 80}]}});
    let service: Service = serde_json::from_value(service).unwrap();
    space.services().create(&params, &service).await.unwrap();
    let manager = space.manager("manager");
    space.create(&Job::new("taken", 0)).await;
    space.until_event("taken", "NameConflict").await;
    assert_eq!(space.warnings_of("taken").await, ["NameConflict"]);
    let reports = |s: &DIJobStatus, object: &str| {
        let condition = find_condition(&s.conditions, ConditionType::ReplicasReady);
        let is_reported = condition.map(|c| (c.status.as_str(), c.reason.as_str(), &c.message));
        s.reason.as_deref() == Some("NameConflict")
            && is_reported.is_some_and(|(status, reason, message)| {
                (status, reason) == ("False", "NameConflict") && message.starts_with(object)
            })
    };
    let of_pod = |s: &DIJobStatus| reports(s, "pod taken-coordinator");
    let description = "the condition names the pod";
    space.until("taken", description, of_pod).await;
    let still = space.pods().get("taken-coordinator").await.unwrap();
    assert_eq!(still, theirs);

    let _kubelet = Kubelet::running(&space);
    remove(&space.pods(), "taken-coordinator").await;
    // Our pod now has the name, and must not be taken for a foreign one.
    let of_service = |s: &DIJobStatus| reports(s, "service taken-coordinator");
    let description = "the condition names the service";
    space.until("taken", description, of_service).await;
    let events: Api<Event> = Api::namespaced(space.client.clone(), &space.namespace);
    eventually("an event names the service", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        let notes: Vec<_> = all.items.into_iter().filter_map(|e| e.note).collect();
        let is_reported = |note: &String| note.starts_with("service taken-coordinator");
        if notes.iter().any(is_reported) {
            Ok(())
        } else {
            Err(notes.join("; "))
        }
    })
    .await;
    remove(&space.services(), "taken-coordinator").await;
    let status = space.until_settled("taken").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn f22_foreign_pod_with_planned_name_is_not_counted() {
    let space = Space::new().await;
    let settings = Settings {
        allow_anonymous: true,
        scheduling_wait: Duration::ZERO,
        ..Settings::default()
    };
    let endpoint = Endpoint::start_with(&space, "endpoint", settings).await;
    space.create(&Job::new("draws", 0)).await;
    // No manager creates the pods yet.
    let drawn = endpoint.add("draws", 2, None).await.pods();
    let (name, other) = (&drawn[0], &drawn[1]);
    let mut pod: Pod = serde_json::from_value(template()).unwrap();
    pod.metadata.name = Some(name.clone());
    let params = PostParams::default();
    let theirs = space.pods().create(&params, &pod).await.unwrap();
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let is_reported = |s: &DIJobStatus| {
        s.reason.as_deref() == Some("NameConflict") && s.collectors_ready.as_deref() == Some("1/2")
    };
    let status = space
        .until(
            "draws",
            "one pod is created and the other reported",
            is_reported,
        )
        .await;
    for entry in &status.plan {
        assert_eq!(entry.uid.is_some(), entry.name == *other, "{entry:?}");
    }

    // A client that reports it gets a replica with another name.
    let fresh = endpoint.report_failed("draws", name).await.pods();
    let status = space.until_settled("draws").await;
    let planned: BTreeSet<_> = status.plan.iter().map(|entry| &entry.name).collect();
    assert_eq!(planned, BTreeSet::from([other, &fresh[0]]));
    let still = space.pods().get(name).await.unwrap();
    assert_eq!(still.uid(), theirs.uid());
    assert_eq!(still.labels(), theirs.labels());
    assert!(still.owner_references().is_empty() && still.metadata.deletion_timestamp.is_none());
    manager.stop().await;
}

#[tokio::test]
async fn objects_without_labels_are_deleted_and_replaced() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("stripped", 2)).await;
    let before = space.until_settled("stripped").await;
    let collector = &before.plan[0].name;
    let uid_of = async |name: &str| {
        space
            .pods()
            .get_opt(name)
            .await
            .unwrap()
            .and_then(|p| p.uid())
    };
    let patch = Patch::Merge(json!({"metadata": {"labels": null}}));
    for name in [collector, "stripped-coordinator"] {
        let uid = uid_of(name).await;
        let params = PatchParams::default();
        space.services().patch(name, &params, &patch).await.unwrap();
        space.pods().patch(name, &params, &patch).await.unwrap();
        eventually("the pod without labels is deleted", async || {
            let now = uid_of(name).await;
            if now == uid {
                Err(format!("{now:?}"))
            } else {
                Ok(())
            }
        })
        .await;
    }
    let after = space.until_settled("stripped").await;
    assert!(
        after.plan.iter().all(|entry| entry.name != *collector),
        "{after:?}"
    );
    assert_eq!(space.pods_of("stripped").await.len(), 3);
    assert_eq!(after.restarts, 0);
    manager.stop().await;
}

#[tokio::test]
async fn f8_deleted_job_gets_no_new_objects() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let params = DeleteParams::default();
    // One job never started; the other runs and loses its pods.
    space.create(&Job::new("unborn", 2).finalizer()).await;
    space.jobs().delete("unborn", &params).await.unwrap();
    let manager = space.manager("manager");
    space.create(&Job::new("dying", 2).finalizer()).await;
    space.until_settled("dying").await;
    space.jobs().delete("dying", &params).await.unwrap();
    let before = space.writes().await.len();
    for name in space.pods_of("dying").await.keys() {
        remove(&space.pods(), name).await;
    }
    wait_for_objects("pods", &[], async || space.pods_of("dying").await).await;

    space.create(&Job::new("later", 1)).await;
    space.until_settled("later").await;
    let writes = space.writes().await;
    let made: Vec<_> = writes
        .iter()
        .filter(|w| w.concerns_job("unborn") && w.agent == "manager" && w.verb == "create")
        .collect();
    assert!(made.is_empty(), "{made:?}");
    let made: Vec<_> = writes[before..]
        .iter()
        .filter(|w| w.concerns_job("dying") && w.agent == "manager" && w.verb == "create")
        // Events may be sent late.
        .filter(|w| w.resource != "events")
        .collect();
    assert!(made.is_empty(), "{made:?}");
    for job in ["unborn", "dying"] {
        assert!(space.pods_of(job).await.is_empty(), "{job}");
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        space
            .jobs()
            .patch(job, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    space.until_phase("later", Phase::Running).await;
    manager.stop().await;
}
