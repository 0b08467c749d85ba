//! Faults of an earlier orchestrator that must not come back, as far as they need an API server and have no better place.

use std::time::Duration;

use di_api::names::labels;
use di_apiserver_tests::{
    Caller, Came, Endpoint, Job, Kubelet, Proxy, Space, Write, eventually, exists, remove, run,
    template,
};
use di_replicas::{Metrics, watch};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{task::JoinSet, try_join};

#[tokio::test]
async fn f15_a_job_without_collectors_or_learners_says_so_and_gets_neither() {
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
        let request = endpoint.change(Method::POST, "", name, None, both);
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
async fn f37_pods_of_others_are_not_even_sent_to_the_endpoint() {
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
    let (_jobs, pods) = watch(&proxy.client(), &mut tasks, &Metrics::default());
    eventually("coordinator and collector are known", async || {
        match pods.len() {
            2 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
    let asked = eventually("it lists pods and watches them", async || {
        let mut asked = proxy.came();
        asked.retain(|came| came.path().ends_with("/pods"));
        if asked.iter().any(Came::is_list) && asked.iter().any(Came::is_watch) {
            Ok(asked)
        } else {
            Err(format!("{asked:?}"))
        }
    })
    .await;
    let selector = labels::SELECTOR.replace('=', "%3D").replace(',', "%2C");
    for came in asked {
        let selects = came.target.contains(&format!("labelSelector={selector}"));
        assert!(selects, "{came:?}");
    }
    manager.stop().await;
}

#[tokio::test]
async fn f41_who_goes_has_the_time_that_its_template_gives() {
    let space = Space::new().await;
    // Nobody reaps, so that what was asked for can be seen.
    let manager = space.manager("manager");
    let settings = di_replicas::Settings {
        allow_anonymous: true,
        create_wait: Duration::ZERO,
        ..di_replicas::Settings::default()
    };
    let endpoint = Endpoint::start_with(&space, "endpoint", settings).await;
    let mut job = Job::new("job", 0).json().clone();
    job["spec"]["collector"]["template"]["spec"]["terminationGracePeriodSeconds"] = 123.into();
    space.create(&Job::from(job)).await;
    let names = endpoint.add("job", 2, None).await.pods();
    for name in &names {
        eventually("it and its service are made", async || {
            let (pods, services) = (space.pods(), space.services());
            let made = try_join!(pods.get(name), services.get(name));
            made.map_err(|e| e.to_string())
        })
        .await;
        run(&space.pods(), name).await;
    }
    let reported = &endpoint.failed("job", &names[0]).await.pods()[0];
    assert_ne!(reported, &names[0]);
    endpoint.remove("job", 2).await;
    for name in &names {
        eventually(&format!("{name} is told to go"), async || {
            let pod = space.pods().get(name).await.map_err(|e| e.to_string())?;
            match pod.metadata.deletion_grace_period_seconds {
                Some(123) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    check_that_services_outlive(&space, &names).await;
    manager.stop().await;
}

/// Ends the pods that are told to go, and looks when their services went.
async fn check_that_services_outlive(space: &Space, pods: &[String]) {
    for name in pods {
        remove(&space.pods(), name).await;
    }
    let left = ["job-coordinator".to_owned()];
    exists("services", &left, async || space.services_of("job").await).await;
    let writes = space.writes().await;
    let deleted = |resource: &str, agent: &str, name: &str| {
        let is_it = |w: &&Write| w.is("delete", resource) && (&*w.agent, &*w.name) == (agent, name);
        writes.iter().find(is_it).unwrap().received.clone()
    };
    for name in pods {
        let pod = deleted("pods", "test", name);
        let service = deleted("services", "manager", name);
        assert!(pod < service, "{name}: who says goodbye to it finds it");
    }
}
