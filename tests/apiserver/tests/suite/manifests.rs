//! What the manifests promise, read from what users apply.

use serde_json::Value;

fn installed() -> Vec<Value> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/install.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn one(kind: &str, name: &str) -> Value {
    let all = installed();
    let mut found = all
        .into_iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn containers() -> (Value, Vec<Value>) {
    let pod = one("Deployment", "di-webhook")["spec"]["template"]["spec"].take();
    let containers = pod["containers"].as_array().unwrap().clone();
    (pod, containers)
}

#[test]
fn f17_only_pods_of_jobs_reach_the_endpoint_and_nobody_from_outside() {
    for object in installed() {
        if object["kind"] == "Service" {
            let type_ = object["spec"]["type"].as_str().unwrap_or("ClusterIP");
            assert_eq!(type_, "ClusterIP", "{object}");
        }
    }
    let (pod, containers) = containers();
    assert!(pod["hostNetwork"].is_null(), "{pod}");
    for container in &containers {
        let args = container["args"].as_array().unwrap();
        assert!(!args.contains(&"--allow-anonymous".into()), "{args:?}");
    }
    let policy = one("NetworkPolicy", "di-orchestrator");
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let to_endpoint = rules.iter().filter(|rule| {
        let ports = rule["ports"].as_array().unwrap();
        ports.iter().any(|port| port["port"] == "replicas")
    });
    let from: Vec<_> = to_endpoint.map(|rule| rule["from"].to_string()).collect();
    assert_eq!(from.len(), 2, "{from:?}");
    assert!(from[0].contains("\"group-name\":\"diengine.opendilab.org\""));
    assert!(from[1].contains("monitoring"));
    assert_eq!(
        policy["spec"]["policyTypes"],
        serde_json::json!(["Ingress", "Egress"])
    );
}

#[test]
fn callers_stay_with_one_replica_of_the_endpoint() {
    let service = one("Service", "di-server");
    assert_eq!(service["spec"]["sessionAffinity"], "ClientIP");
    assert_eq!(service["spec"]["ports"][0]["port"], 8080);
}

#[test]
fn f33_a_replica_is_sent_nobody_before_it_is_ready() {
    for container in containers().1 {
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    }
}

#[test]
fn f42_the_webhooks_ask_for_little_and_there_are_two_of_them() {
    assert!(one("Deployment", "di-webhook")["spec"]["replicas"].as_i64() >= Some(2));
    for (kind, fails) in [
        ("MutatingWebhookConfiguration", "Ignore"),
        ("ValidatingWebhookConfiguration", "Fail"),
    ] {
        for webhook in one(kind, "di-webhook")["webhooks"].as_array().unwrap() {
            assert_eq!(webhook["failurePolicy"], fails);
            assert_eq!(webhook["sideEffects"], "None");
            assert!(webhook["timeoutSeconds"].as_i64() <= Some(10));
            for rule in webhook["rules"].as_array().unwrap() {
                assert_eq!(
                    rule["apiGroups"],
                    serde_json::json!(["diengine.opendilab.org"])
                );
            }
        }
    }
}

#[test]
fn f43_containers_run_as_nobody_with_a_bound_on_memory_and_none_on_cpu() {
    let (pod, containers) = containers();
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(containers.len(), 2);
    for container in containers {
        let confined = &container["securityContext"];
        assert_eq!(confined["readOnlyRootFilesystem"], true);
        assert_eq!(confined["allowPrivilegeEscalation"], false);
        assert_eq!(confined["capabilities"]["drop"][0], "ALL");
        assert_ne!(container["imagePullPolicy"], "Always");
        let limits = &container["resources"]["limits"];
        assert!(
            limits["cpu"].is_null() && limits["memory"].is_string(),
            "{limits}"
        );
    }
}
