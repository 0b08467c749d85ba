//! Scaling by users and autoscalers.

use di_api::{DIJob, Phase, PlanEntry, names::MAX_REPLICAS};
use di_apiserver_tests::{Job, Kubelet, Server, Space, eventually, exit};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::json;

use crate::kubectl::{Kubectl, any_kubectl};

/// Replicas of the group, which a scale does not change.
const GROUP: i32 = 1;

/// Waits until pods, spec, status and scale subresource agree on the number of collectors.
async fn wait_for_scale(space: &Space, job: &str, declared: i32) {
    let jobs = space.jobs();
    let wanted = declared + GROUP;
    eventually("as many collectors as wanted", async || {
        let scale = jobs.get_scale(job).await.unwrap();
        let observed = scale.status.unwrap();
        let Some(selector) = observed.selector else {
            return Err("no selector yet".to_owned());
        };
        let selector = ListParams::default().labels(&selector);
        let selected = space.pods().list(&selector).await.unwrap().items.len();
        let DIJob { spec, status, .. } = jobs.get(job).await.unwrap();
        let (collector, status) = (spec.collector.unwrap(), status.unwrap());
        assert_eq!(collector.groups[0].replicas, GROUP);
        let seen = (
            // Zero replicas are omitted.
            scale.spec.unwrap().replicas.unwrap_or_default(),
            collector.replicas,
            observed.replicas,
            status.collectors,
            i32::try_from(selected).unwrap(),
            status.collectors_ready,
        );
        let ready = Some(format!("{wanted}/{wanted}"));
        if seen == (declared, declared, wanted, wanted, wanted, ready) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await;
}

/// Updates the scale like an autoscaler: read, change, write, and repeat after a conflict.
async fn replace_scale(jobs: &Api<DIJob>, job: &str, replicas: i32) {
    eventually("the scale is taken", async || {
        let mut scale = jobs.get_scale(job).await.unwrap();
        scale.spec.as_mut().unwrap().replicas = Some(replicas);
        let params = PostParams::default();
        match jobs.replace_scale(job, &params, &scale).await {
            Ok(scale) => {
                assert_eq!(scale.spec.unwrap().replicas, Some(replicas));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(status.message),
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

fn wait_by_kubectl(kubectl: &Kubectl<'_>, space: &Space, condition: &str) {
    let wanted = format!("--for=condition={condition}");
    let said = kubectl.run(&[
        "-n",
        &space.namespace,
        "wait",
        "dijob/scaled",
        &wanted,
        "--timeout=60s",
    ]);
    assert_eq!(said, "dijob.diengine.opendilab.org/scaled condition met\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_and_autoscaler_scale_collectors_outside_groups() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let job = Job::new("scaled", 2).with(|spec| {
        spec["collector"]["groups"] =
            json!([{"name": "big", "replicas": GROUP, "resources": {"cpus": "4"}}]);
    });
    space.create(&job).await;
    wait_for_scale(&space, "scaled", 2).await;

    let kubectl = Kubectl {
        program: any_kubectl(),
        server: Server::shared().await,
    };
    for (declared, resource) in [(4, "dijobs/scaled"), (0, "dijob/scaled")] {
        let replicas = format!("--replicas={declared}");
        let said = kubectl.run(&["-n", &space.namespace, "scale", resource, &replicas]);
        assert_eq!(said, "dijob.diengine.opendilab.org/scaled scaled\n");
        wait_for_scale(&space, "scaled", declared).await;
        // kubectl ignores conditions that were observed before the scale.
        wait_by_kubectl(&kubectl, &space, "Created");
    }
    for declared in [3, 1] {
        replace_scale(&space.jobs(), "scaled", declared).await;
        wait_for_scale(&space, "scaled", declared).await;
    }

    // An ended job accepts the scale and ignores it.
    exit(&space.pods(), "scaled-coordinator", 0).await;
    space.until_phase("scaled", Phase::Succeeded).await;
    eventually("only the coordinator is kept", async || {
        let left = space.pods_of("scaled").await.into_keys();
        let left: Vec<_> = left.collect();
        if left == ["scaled-coordinator"] {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    replace_scale(&space.jobs(), "scaled", 5).await;
    space.create(&Job::new("later", 1)).await;
    space.until_settled("later").await;
    let DIJob { spec, status, .. } = space.jobs().get("scaled").await.unwrap();
    assert_eq!(spec.collector.unwrap().replicas, 5);
    let status = status.unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert!(!status.plan.iter().any(PlanEntry::is_wanted));
    assert_eq!(space.pods_of("scaled").await.len(), 1);
    wait_by_kubectl(&kubectl, &space, "Succeeded");
    manager.stop().await;
}

async fn rejected_scale(space: &Space, version: &str, job: &str, replicas: i32) -> Box<Status> {
    let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let params = PatchParams::default();
    let jobs = space.dynamic_jobs(version);
    match jobs.patch_scale(job, &params, &scale).await {
        Err(kube::Error::Api(status)) => status,
        other => panic!("{version}: {other:?}"),
    }
}

/// The CRD schema rejects them: no webhook is called for the scale subresource.
#[tokio::test]
async fn impossible_scale_is_rejected_with_reason() {
    let space = Space::new().await;
    space.create(&Job::new("some", 2)).await;
    let bare = Job::new("bare", 0).with(|spec| {
        spec.as_object_mut().unwrap().remove("collector");
    });
    space.create(&bare).await;
    let before = space.jobs().get("bare").await.unwrap().spec;
    for version in ["v1alpha1", "v1alpha2"] {
        for (job, replicas, why) in [
            ("bare", 3, "spec.collector.template: Required value"),
            (
                "some",
                MAX_REPLICAS + 1,
                "should be less than or equal to 2000",
            ),
        ] {
            let status = rejected_scale(&space, version, job, replicas).await;
            assert_eq!(status.code, 422, "{version} {job}: {status:?}");
            assert!(status.message.contains(why), "{version} {job}: {status:?}");
        }
    }
    assert_eq!(space.jobs().get("bare").await.unwrap().spec, before);
    let some = space.jobs().get("some").await.unwrap().spec;
    assert_eq!(some.collector.unwrap().replicas, 2);
}
