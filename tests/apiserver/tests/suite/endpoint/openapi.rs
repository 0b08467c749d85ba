//! The endpoint behaves as its OpenAPI document says.

use std::time::Duration;

use di_api::Role;
use di_apiserver_tests::{
    Endpoint, Job, Kubelet, Space, common_nodes, create_aggregator_config, run_schemathesis,
};
use di_replicas::Settings;
use serde_json::{Value, json};

/// Restricts parameters to existing names and one unknown name each, so that requests are useful.
/// It removes idempotency keys, because schemathesis would repeat the same few.
fn restrict_document(
    mut document: Value,
    namespace: &str,
    aggregator: &str,
    replicas: &[String],
) -> Value {
    let one_of = |names: &[&str]| json!({"type": "string", "enum": names});
    let aggregators = one_of(&[aggregator, "unknown-aggregator-bcdfg"]);
    let coordinators = one_of(&["job-coordinator", "unknown-coordinator"]);
    let known: Vec<&str> = replicas
        .iter()
        .map(String::as_str)
        .chain(["unknown"])
        .collect();
    for path in document["paths"].as_object_mut().unwrap().values_mut() {
        let parameters = path.pointer_mut("/get/parameters");
        let parameters = parameters.and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            parameter["schema"] = match parameter["name"].as_str().unwrap() {
                "namespace" => one_of(&[namespace]),
                "coordinator" => coordinators.clone(),
                "aggregator" => aggregators.clone(),
                "name" => one_of(&known),
                // A longer wait would make the test slow.
                "wait" => one_of(&["0s"]),
                _ => continue,
            };
        }
        for method in ["post", "delete"] {
            if let Some(parameters) = path.pointer_mut(&format!("/{method}/parameters")) {
                let parameters = parameters.as_array_mut().unwrap();
                parameters.retain(|of| of["in"] != "header");
            }
        }
    }
    let bodies = ["AddRequest", "RemoveRequest", "FailedRequest"];
    for body in bodies
        .iter()
        .flat_map(|body| [(*body).to_owned(), format!("Strict{body}")])
    {
        let fields = &mut document["components"]["schemas"][&body]["properties"];
        fields["namespace"] = one_of(&[namespace]);
        fields["coordinator"] = coordinators.clone();
        for part in ["collectors", "learners"] {
            // Keep counts small, or the job soon reaches its limit.
            if body.ends_with("FailedRequest") {
                fields[part]["items"] = one_of(&known);
            } else {
                let few = json!({"type": "integer", "minimum": 0, "maximum": 3});
                fields[part]["properties"]["replicas"] = few.clone();
                if body.ends_with("AddRequest") && part == "learners" {
                    fields[part]["properties"]["gpus"] = few;
                }
            }
        }
    }
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_document_matches_responses() {
    let space = Space::new().await;
    let space = space.without_random_faults("it expects certain answers, and sends nothing again");
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let settings = Settings {
        allow_anonymous: true,
        scheduling_wait: Duration::ZERO,
        ..Settings::default()
    };
    let endpoint = Endpoint::start_with(&space, "endpoint", settings).await;
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
    space
        .create(&Job::new("job", 2).learners_with(1, &gpus))
        .await;
    let plan = space.until_settled("job").await.plan;
    let aggregator = plan.iter().find(|entry| entry.role == Role::Aggregator);
    let aggregator = aggregator.unwrap().name.clone();
    // No manager creates the planned pods from here on.
    manager.stop().await;

    let address = format!("http://{}", endpoint.address());
    let document = format!("{address}/openapi.json");
    let text = reqwest::get(&document).await.unwrap().text().await.unwrap();
    // Include the ddp learners.
    let replicas: Vec<_> = plan.into_iter().map(|entry| entry.name).collect();
    let narrow = restrict_document(
        serde_json::from_str(&text).unwrap(),
        &space.namespace,
        &aggregator,
        &replicas,
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("openapi.json");
    std::fs::write(&file, narrow.to_string()).unwrap();
    let runs = tokio::task::spawn_blocking(move || {
        run_schemathesis(&document, &[]);
        // The restricted requests must be accepted.
        let positive = ["--mode", "positive", "--url", &address];
        run_schemathesis(file.to_str().unwrap(), &positive);
    });
    runs.await.unwrap();

    let metrics = format!("http://{}/metrics", endpoint.address());
    let metrics = reqwest::get(&metrics).await.unwrap().text().await.unwrap();
    let count = |line: &str| {
        let mut lines = metrics.lines();
        let found = lines.find_map(|of| of.strip_prefix(line)?.trim().parse::<u64>().ok());
        found.unwrap_or(0)
    };
    for version in ["v1alpha1", "v1alpha2"] {
        for (method, path) in [
            ("GET", "replicas"),
            ("POST", "replicas"),
            ("DELETE", "replicas"),
            ("POST", "replicas/failed"),
        ] {
            let labels = format!("route=\"/{version}/{path}\",method=\"{method}\",code=\"200\"");
            let answered = count(&format!("di_replicas_requests_total{{{labels}}}"));
            assert!(answered > 5, "{version} {method} {path}: {answered}");
        }
    }
    for counter in ["planned", "released", "replaced"] {
        assert!(
            count(&format!("di_replicas_{counter}_total")) > 5,
            "{counter}: {metrics}"
        );
    }
}
