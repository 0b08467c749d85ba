//! Jobs that an API server without our webhooks accepted although they are undecodable or invalid.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use di_api::{
    DIJobStatus, Phase,
    names::LEGACY_VERSION,
    validation::{summarize_faults, validate_dijob},
};
use di_apiserver_tests::{
    Job, Kubelet, Manager, Proxy, ProxyAction, Space, eventually, template, wait_for_objects,
};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// Builds a job in v1alpha1, whose schema is open.
fn legacy_job(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob",
        "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

#[tokio::test]
async fn f13_undecodable_jobs_do_not_block_others() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let api = space.dynamic_jobs(LEGACY_VERSION);
    let good = json!({"template": template()});
    let specs = [
        json!({"coordinator": "x"}),
        json!({"coordinator": good, "volumes": 7}),
        json!({"coordinator": good, "activeDeadlineSeconds": "soon"}),
        json!({"coordinator": {"template": {"spec": {"containers": "none"}}}}),
        json!({}),
    ];
    let params = PostParams::default();
    for (i, spec) in specs.iter().enumerate() {
        api.create(&params, &legacy_job(&format!("before-{i}"), spec))
            .await
            .unwrap();
    }
    let manager = space.manager("manager");
    space.create(&Job::new("good", 1)).await;
    space.until_settled("good").await;
    for (i, spec) in specs.iter().enumerate() {
        api.create(&params, &legacy_job(&format!("after-{i}"), spec))
            .await
            .unwrap();
    }
    space.create(&Job::new("later", 1)).await;
    space.until_settled("later").await;
    let made = space.writes_of("manager").await;
    let made = made.iter().filter(|w| {
        w.is_call("create", "pods") && !w.concerns_job("good") && !w.concerns_job("later")
    });
    assert_eq!(made.count(), 0);

    // They must fail with a reason.
    for job in (0..specs.len()).flat_map(|i| [format!("before-{i}"), format!("after-{i}")]) {
        eventually(&format!("{job} has failed"), async || {
            let status = &api.get(&job).await.unwrap().data["status"];
            let wanted = status["phase"] == "Failed" && status["reason"] == "InvalidSpec";
            if wanted {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })
        .await;
        space.until_event(&job, "InvalidSpec").await;
    }
    manager.stop().await;
}

#[tokio::test]
async fn running_job_made_undecodable_is_reported_and_continues() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let api = space.dynamic_jobs(LEGACY_VERSION);
    let manager = space.manager("manager");
    let good = json!({"coordinator": {"template": template()}});
    let params = PostParams::default();
    api.create(&params, &legacy_job("spoilt", &good))
        .await
        .unwrap();
    space.until_settled("spoilt").await;

    let spoil =
        |deadline: Value| Patch::Merge(json!({"spec": {"activeDeadlineSeconds": deadline}}));
    let params = PatchParams::default();
    api.patch("spoilt", &params, &spoil(json!("soon")))
        .await
        .unwrap();
    space.until_event("spoilt", "InvalidSpec").await;
    // The event may come before the status when the response of a write was lost.
    let status = eventually("its status reports the fault", async || {
        let status = api.get("spoilt").await.unwrap().data["status"].clone();
        let is_reported = status["reason"] == "InvalidSpec";
        is_reported
            .then(|| status.clone())
            .ok_or(status.to_string())
    })
    .await;
    assert_eq!(status["phase"], "Running");
    let conditions = status["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|c| c["type"] == "ReplicasReady");
    let message = condition.unwrap()["message"].as_str().unwrap();
    assert!(message.contains("\"soon\""), "{message}");

    // A lost status does not make it a new job.
    let lost = Patch::Merge(json!({"status": null}));
    api.patch_status("spoilt", &params, &lost).await.unwrap();
    eventually("the fault is reported again", async || {
        let status = &api.get("spoilt").await.unwrap().data["status"];
        match (&status["phase"], &status["reason"]) {
            (Value::Null, reason) if reason == "InvalidSpec" => Ok(()),
            _ => Err(status.to_string()),
        }
    })
    .await;

    api.patch("spoilt", &params, &spoil(Value::Null))
        .await
        .unwrap();
    let status = space.until_settled("spoilt").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn ended_undecodable_job_is_cleaned_up_and_expires() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let api = space.dynamic_jobs(LEGACY_VERSION);
    let manager = space.manager("manager");
    let good = json!({"template": template()});
    let params = PostParams::default();
    let never = json!({"coordinator": good, "volumes": 7, "ttlSecondsAfterFinished": 0});
    api.create(&params, &legacy_job("never", &never))
        .await
        .unwrap();
    let spec = json!({"coordinator": good, "collector": {"template": template(), "replicas": 1}});
    api.create(&params, &legacy_job("over", &spec))
        .await
        .unwrap();
    space.until_settled("over").await;
    manager.stop().await;

    // The job ended and became undecodable while no manager ran. See docs/decisions/0018.
    let coordinator = "over-coordinator".to_owned();
    let params = PatchParams::default();
    let spoilt = Patch::Merge(json!({"spec": {"volumes": 7}}));
    api.patch("over", &params, &spoilt).await.unwrap();
    let ended = json!({"phase": "Failed", "completionTime": "2020-01-15T08:00:00Z"});
    let ended = Patch::Merge(json!({"status": ended}));
    api.patch_status("over", &params, &ended).await.unwrap();
    let manager = space.manager("manager");
    wait_for_objects("services", &[], async || space.services_of("over").await).await;
    wait_for_objects("pods", &[coordinator], async || space.pods_of("over").await).await;
    let expires = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 0}}));
    api.patch("over", &params, &expires).await.unwrap();
    for job in ["never", "over"] {
        eventually(&format!("{job} has expired"), async || {
            match api.get_opt(job).await.unwrap() {
                None => Ok(()),
                Some(job) => Err(format!("{:?}", job.data)),
            }
        })
        .await;
    }
    manager.stop().await;
}

#[tokio::test]
async fn job_valid_only_in_v1alpha1_runs() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let api = space.dynamic_jobs(LEGACY_VERSION);
    // The schema of v1alpha2 rejects a fraction as a quantity.
    let mut template = template();
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": 0.5}});
    let spec = json!({"coordinator": {"template": template}});
    let manager = space.manager("manager");
    let params = PostParams::default();
    api.create(&params, &legacy_job("open", &spec))
        .await
        .unwrap();
    space.until_settled("open").await;
    manager.stop().await;
}

#[tokio::test]
async fn job_with_misspelt_field_fails_with_validator_message() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let api = space.dynamic_jobs(LEGACY_VERSION);
    let good = json!({"coordinator": {"template": template()}});
    let mut top = good.clone();
    top["cleanPodPolciy"] = json!("All");
    let mut deep = good.clone();
    deep["coordinator"]["tmplate"] = json!({});
    deep["backoffLimit"] = json!(2);
    let params = PostParams::default();
    let manager = space.manager("manager");
    for (name, spec) in [("top", &top), ("deep", &deep), ("good", &good)] {
        api.create(&params, &legacy_job(name, spec)).await.unwrap();
    }
    space.until_settled("good").await;
    for (name, message) in [
        (
            "top",
            r"spec.cleanPodPolciy: Invalid value: unknown field, did you mean cleanPodPolicy?",
        ),
        (
            "deep",
            r"spec.coordinator.tmplate: Invalid value: unknown field, did you mean template?",
        ),
    ] {
        space.until_event(name, "InvalidSpec").await;
        // The event comes first if the status write got no response.
        let has_failed = |status: &DIJobStatus| status.phase == Some(Phase::Failed);
        space.until(name, "it has failed", has_failed).await;
        let status = api.get(name).await.unwrap().data["status"].clone();
        assert_eq!(status["reason"], "InvalidSpec");
        let conditions = status["conditions"].as_array().unwrap();
        let failed = conditions.iter().find(|c| c["type"] == "Failed").unwrap();
        assert_eq!(failed["message"], message);
        let events: Api<Event> = Api::namespaced(space.client.clone(), &space.namespace);
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut notes = events.items.iter().map(|event| event.note.as_deref());
        assert!(notes.any(|note| note == Some(message)), "{message}");
        assert!(space.pods_of(name).await.is_empty());
    }
    manager.stop().await;
}

#[tokio::test]
async fn job_created_suspended_is_validated_on_resume() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let api = space.dynamic_jobs(LEGACY_VERSION);
    let good = json!({"coordinator": {"template": template()}, "suspend": true});
    let mut misspelt = good.clone();
    misspelt["cleanPodPolciy"] = json!("All");
    let mut invalid = good;
    invalid["activeDeadlineSeconds"] = json!(-1);
    let params = PostParams::default();
    let manager = space.manager("manager");
    for (name, spec) in [
        ("misspelt", &misspelt),
        ("invalid", &invalid),
        ("fixed", &misspelt),
    ] {
        api.create(&params, &legacy_job(name, spec)).await.unwrap();
        space.until_phase(name, Phase::Suspended).await;
    }
    // A null removes the field.
    let resume = Patch::Merge(json!({"spec": {"suspend": false}}));
    let fix = Patch::Merge(json!({"spec": {"suspend": false, "cleanPodPolciy": null}}));
    let params = PatchParams::default();
    for (name, change) in [("misspelt", &resume), ("invalid", &resume), ("fixed", &fix)] {
        api.patch(name, &params, change).await.unwrap();
    }
    for name in ["misspelt", "invalid"] {
        let status = space.until_phase(name, Phase::Failed).await;
        assert_eq!(status.reason.as_deref(), Some("InvalidSpec"), "{name}");
        space.until_event(name, "InvalidSpec").await;
        assert!(space.pods_of(name).await.is_empty());
    }
    space.until_settled("fixed").await;
    manager.stop().await;
}

/// Whether an event note is the message, or its beginning if it is too long.
fn matches_event_note(note: &str, message: &str) -> bool {
    match note.strip_suffix('…') {
        Some(beginning) => beginning.len() >= 1000 && message.starts_with(beginning),
        None => note == message,
    }
}

#[tokio::test]
async fn job_with_several_faults_fails_listing_all() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let api = space.dynamic_jobs(LEGACY_VERSION);
    let good = json!({
        "coordinator": {"template": template()}, "collector": {"template": template(), "replicas": 1},
    });
    let with = |faults: &Value| {
        let mut spec = good.clone();
        let faults = faults.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(faults);
        spec
    };
    let two = json!({"cleanPodPolciy": "All", "activeDeadlineSeconds": -1});
    let mut three = with(&two);
    three["coordinator"]["template"]["spec"]["containers"][0]["name"] = json!("main");
    let mut unreadable = with(&two);
    unreadable["volumes"] = json!(7);
    let unheard_of = (0..30).map(|i| (format!("unheardOf{i}"), json!("x")));
    let long = with(&unheard_of.collect());
    let params = PostParams::default();
    let mut expected = Vec::new();
    let manager = space.manager("manager");
    for (name, spec, faults) in [
        ("three", &three, 3),
        ("unreadable", &unreadable, 3),
        ("long", &long, 30),
    ] {
        let stored = api.create(&params, &legacy_job(name, spec)).await.unwrap();
        let found = validate_dijob(&serde_json::to_value(stored).unwrap()).unwrap_err();
        assert_eq!(found.len(), faults, "{found:?}");
        expected.push((name, summarize_faults(&found)));
    }
    assert!(expected[2].1.len() > 1024, "an event holds no more");
    api.create(&params, &legacy_job("good", &good))
        .await
        .unwrap();
    space.until_settled("good").await;

    let events: Api<Event> = Api::namespaced(space.client.clone(), &space.namespace);
    for (name, message) in expected {
        space.until_event(name, "InvalidSpec").await;
        // The event may come before the status when the response of a write was lost.
        let status = eventually("the job has failed", async || {
            let status = api.get(name).await.unwrap().data["status"].clone();
            if status["phase"] == "Failed" {
                Ok(status)
            } else {
                Err(status.to_string())
            }
        })
        .await;
        let conditions = status["conditions"].as_array().unwrap();
        let failed = conditions.iter().find(|c| c["type"] == "Failed").unwrap();
        assert_eq!(failed["message"], message);
        let events = events.list(&ListParams::default()).await.unwrap();
        let about = events.items.iter().filter(|event| {
            let regarding = event.regarding.as_ref();
            regarding.and_then(|object| object.name.as_deref()) == Some(name)
        });
        let notes: Vec<_> = about.filter_map(|event| event.note.as_deref()).collect();
        assert!(
            notes.iter().any(|note| matches_event_note(note, &message)),
            "{notes:?}"
        );
        assert!(space.pods_of(name).await.is_empty());
        assert!(space.services_of(name).await.is_empty());
    }
    manager.stop().await;
}

/// A status that reports a failed read must not make the job look started.
/// See docs/decisions/0013.
#[tokio::test]
async fn invalid_job_fails_after_failed_live_reads() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let proxy = Proxy::start(space.server.client_of_manager("manager", &space.namespace));
    let looked = Arc::new(AtomicUsize::new(0));
    let seen = looked.clone();
    proxy.set_rule(move |request| {
        let looks = request.method == "GET" && request.target.contains("/dijobs/misspelt");
        if looks && seen.fetch_add(1, Relaxed) < 2 {
            ProxyAction::Rejected(500)
        } else {
            ProxyAction::Served
        }
    });
    let spec = json!({"coordinator": {"template": template()}, "cleanPodPolciy": "All"});
    let api = space.dynamic_jobs(LEGACY_VERSION);
    let params = PostParams::default();
    api.create(&params, &legacy_job("misspelt", &spec))
        .await
        .unwrap();
    let manager = Manager::start(proxy.client());
    space.until_phase("misspelt", Phase::Failed).await;
    space.until_event("misspelt", "InvalidSpec").await;
    manager.stop().await;
    assert!(looked.load(Relaxed) >= 3);
    let made = space.writes_of("manager").await;
    let made: Vec<_> = made.iter().filter(|w| w.verb == "create").collect();
    assert!(made.iter().all(|w| w.resource == "events"), "{made:?}");
}
