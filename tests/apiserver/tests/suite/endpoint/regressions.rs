//! Regression tests for faults of the previous orchestrator that need an API server.

use std::time::Duration;

use di_api::names::labels;
use di_apiserver_tests::{
    Caller, Endpoint, Job, Kubelet, Proxy, RecordedRequest, Space, Write, eventually, remove, run,
    template, wait_for_objects,
};
use di_replicas::{Metrics, start_watches};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{task::JoinSet, try_join};

#[tokio::test]
async fn f15_request_for_undeclared_role_is_rejected_whole() {
    let space = Space::new().await;
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let no_collector = |spec: &mut Value| {
        spec.as_object_mut().unwrap().remove("collector");
    };
    for (name, job, lacks) in [
        ("acts", Job::new("acts", 0), "learner"),
        (
            "learns",
            Job::new("learns", 0).learners(0).with(no_collector),
            "collector",
        ),
        (
            "serial",
            Job::new("serial", 0).with(no_collector),
            "collector",
        ),
    ] {
        space.create(&job).await;
        let both = json!({"collectors": {"replicas": 2}, "learners": {"replicas": 1}});
        let request = endpoint.change_request(Method::POST, "", name, None, both);
        let answer = Caller::send(request).await.unwrap();
        assert_eq!(answer.status, 400, "{answer:?}");
        let message = answer.body["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("spec.{lacks}.template")),
            "{message}"
        );
        let status = space.jobs().get(name).await.unwrap().status;
        assert!(
            status.is_none_or(|status| status.plan.is_empty()),
            "{name}: not the others alone"
        );
    }
}

#[tokio::test]
async fn f37_pod_watch_selects_only_pods_of_jobs() {
    let space = Space::new().await;
    let _kubelet = Kubelet::reaping(&space);
    for i in 0..20 {
        let mut pod = template();
        pod["metadata"] = json!({"name": format!("foreign-{i}"), "labels": {"app": "other"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        space
            .pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
    }
    let manager = space.manager("manager");
    space.create(&Job::new("job", 1)).await;
    let upstream = space.server.client_of_manager("endpoint", &space.namespace);
    let proxy = Proxy::start(upstream);
    let mut tasks = JoinSet::new();
    let (_jobs, pods) = start_watches(&proxy.client(), &mut tasks, &Metrics::default());
    eventually("coordinator and collector are known", async || {
        match pods.len() {
            2 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
    let asked = eventually("the client lists and watches pods", async || {
        let mut asked = proxy.requests();
        asked.retain(|request| request.path().ends_with("/pods"));
        if asked.iter().any(RecordedRequest::is_list) && asked.iter().any(RecordedRequest::is_watch)
        {
            Ok(asked)
        } else {
            Err(format!("{asked:?}"))
        }
    })
    .await;
    let selector = labels::SELECTOR.replace('=', "%3D").replace(',', "%2C");
    for request in asked {
        let selects = request
            .target
            .contains(&format!("labelSelector={selector}"));
        assert!(selects, "{request:?}");
    }
    manager.stop().await;
}

#[tokio::test]
async fn f41_removed_pod_keeps_its_grace_period() {
    let space = Space::new().await;
    // No kubelet removes pods, so the grace period stays visible.
    let manager = space.manager("manager");
    let settings = di_replicas::Settings {
        allow_anonymous: true,
        scheduling_wait: Duration::ZERO,
        ..di_replicas::Settings::default()
    };
    let endpoint = Endpoint::start_with(&space, "endpoint", settings).await;
    let template = json!({"spec": {"terminationGracePeriodSeconds": 123}});
    let job = Job::new("job", 0).spec(json!({"collector": {"template": template}}));
    space.create(&job).await;
    let names = endpoint.add("job", 2, None).await.pods();
    for name in &names {
        eventually("the pod and its service exist", async || {
            let (pods, services) = (space.pods(), space.services());
            let made = try_join!(pods.get(name), services.get(name));
            made.map_err(|e| e.to_string())
        })
        .await;
        run(&space.pods(), name).await;
    }
    let reported = &endpoint.report_failed("job", &names[0]).await.pods()[0];
    assert_ne!(reported, &names[0]);
    endpoint.remove("job", 2).await;
    for name in &names {
        eventually(&format!("{name} is terminating"), async || {
            let pod = space.pods().get(name).await.map_err(|e| e.to_string())?;
            match pod.metadata.deletion_grace_period_seconds {
                Some(123) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    check_services_outlive_pods(&space, &names).await;
    manager.stop().await;
}

/// Removes terminating pods, and checks that their services were deleted later.
async fn check_services_outlive_pods(space: &Space, pods: &[String]) {
    for name in pods {
        remove(&space.pods(), name).await;
    }
    let left = ["job-coordinator".to_owned()];
    wait_for_objects("services", &left, async || space.services_of("job").await).await;
    let writes = space.writes().await;
    let deleted = |resource: &str, agent: &str, name: &str| {
        let is_it =
            |w: &&Write| w.is_call("delete", resource) && (&*w.agent, &*w.name) == (agent, name);
        writes.iter().find(is_it).unwrap().received.clone()
    };
    for name in pods {
        let pod = deleted("pods", "test", name);
        let service = deleted("services", "manager", name);
        assert!(pod < service, "{name}: the service must outlive its pod");
    }
}
