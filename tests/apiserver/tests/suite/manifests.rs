//! The guarantees of the manifests, checked on the files that users apply.

use std::collections::BTreeSet;

use k8s_openapi::api::{policy::v1::PodDisruptionBudget, scheduling::v1::PriorityClass};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const ALL: &str = "install.yaml";
const WEBHOOKS_ONLY: &str = "install-webhook-only.yaml";

/// Returns all objects except CRDs, which are large and slow to parse.
fn objects_of(file: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests");
    let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
    let objects = text.split("\n---\n");
    let others = objects.filter(|object| !object.contains("\nkind: CustomResourceDefinition\n"));
    let others: Vec<_> = others.collect();
    serde_saphyr::from_multiple(&others.join("\n---\n")).unwrap()
}

fn all_objects() -> Vec<Value> {
    objects_of(ALL)
}

fn object_of(file: &str, kind: &str, name: &str) -> Value {
    let all = objects_of(file);
    let mut found = all
        .into_iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn object(kind: &str, name: &str) -> Value {
    object_of(ALL, kind, name)
}

/// Returns the pod spec that a file installs, and its containers.
fn containers_of(file: &str) -> (Value, Vec<Value>) {
    let pod = object_of(file, "Deployment", "di-webhook")["spec"]["template"]["spec"].take();
    let containers = pod["containers"].as_array().unwrap().clone();
    (pod, containers)
}

fn containers() -> (Value, Vec<Value>) {
    containers_of(ALL)
}

/// Returns the peers that a policy admits to a port, by name or number.
fn allowed_peers(policy: &Value, name: &str, number: u16) -> Vec<Value> {
    let opens = |port: &Value| match port["port"].as_u64() {
        // With `endPort`, the rule covers a range.
        Some(first) => (first..=port["endPort"].as_u64().unwrap_or(first)).contains(&number.into()),
        // Without a port, the rule covers all ports.
        None => port["port"].is_null() || port["port"] == name,
    };
    let rules = policy["spec"]["ingress"].as_array().unwrap().iter();
    let to_it = rules.filter(|rule| match rule["ports"].as_array() {
        Some(ports) => ports.iter().any(opens),
        None => true,
    });
    to_it.map(|rule| rule["from"].clone()).collect()
}

#[test]
fn f17_network_policy_admits_only_pods_of_jobs() {
    for object in all_objects() {
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
    let policy = object("NetworkPolicy", "di-orchestrator");
    let from = allowed_peers(&policy, "replicas", 8080);
    let [clients] = &from[..] else {
        panic!("{from:?}")
    };
    let in_any_namespace = |label: &str, value: &str| json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {label: value}}});
    assert_eq!(
        clients,
        &json!([
            in_any_namespace("group-name", "diengine.opendilab.org"),
            in_any_namespace("diengine.opendilab.org/replicas-client", "true"),
        ])
    );
    // The check must recognize every way to write a rule.
    for port in [json!("replicas"), json!(8080), json!(null)] {
        let open = json!({"spec": {"ingress": [{"ports": [{"port": port}]}]}});
        assert_eq!(allowed_peers(&open, "replicas", 8080).len(), 1, "{open}");
    }
    let all = json!({"spec": {"ingress": [{}]}});
    assert_eq!(allowed_peers(&all, "replicas", 8080).len(), 1);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
}

#[test]
fn metrics_ports_admit_monitoring_namespace() {
    let policy = object("NetworkPolicy", "di-orchestrator");
    let monitoring = json!({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}});
    for (port, number) in [("metrics", 8081), ("health", 8082)] {
        let from = allowed_peers(&policy, port, number);
        assert_eq!(from, [json!([{"namespaceSelector": monitoring}])], "{port}");
    }
}

/// Returns the values of all fields with this name.
fn values_of(object: &Value, field: &str) -> Vec<Value> {
    let children: Vec<_> = match object {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let own = object.get(field).cloned();
    let deeper = children.into_iter().flat_map(|one| values_of(one, field));
    own.into_iter().chain(deeper).collect()
}

/// Newer API servers replace these values as a whole. Without the default, `kubectl di upgrade`
/// conflicts with `kubectl apply`.
#[test]
fn atomic_values_name_their_defaults() {
    for file in [ALL, WEBHOOKS_ONLY] {
        let objects = Value::Array(objects_of(file));
        let references = values_of(&objects, "fieldRef");
        assert!(references.len() >= 2, "{file}: {references:?}");
        for reference in references {
            assert_eq!(reference["apiVersion"], "v1", "{file}: {reference}");
        }
        let policy = object_of(file, "NetworkPolicy", "di-orchestrator");
        for port in values_of(&policy, "ports").iter().flat_map(all_items) {
            assert!(port["protocol"].is_string(), "{file}: {port}");
        }
    }
}

fn all_items(list: &Value) -> &[Value] {
    list.as_array().unwrap()
}

#[test]
fn endpoint_service_has_session_affinity() {
    let service = object("Service", "di-server");
    assert_eq!(service["spec"]["sessionAffinity"], "ClientIP");
    assert_eq!(service["spec"]["ports"][0]["port"], 8080);
}

#[test]
fn f33_containers_have_readiness_and_liveness_probes() {
    for container in containers().1 {
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    }
}

#[test]
fn probe_ports_are_closed_to_clients() {
    let policy = object("NetworkPolicy", "di-orchestrator");
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let (_, containers) = containers();
    for container in &containers {
        for probe in ["readinessProbe", "livenessProbe"] {
            let probed = &container[probe]["httpGet"]["port"];
            for rule in rules {
                let ports = rule["ports"].as_array().unwrap();
                let opens = ports.iter().any(|port| port["port"] == *probed);
                let from = rule["from"].to_string();
                assert!(!opens || from.contains("monitoring"), "{probed}: {rule}");
            }
        }
    }
    let ports = containers
        .iter()
        .flat_map(|container| container["ports"].as_array().unwrap());
    let numbers: Vec<_> = ports.map(|port| port["containerPort"].as_i64()).collect();
    let each: BTreeSet<_> = numbers.iter().collect();
    assert_eq!(each.len(), numbers.len(), "{numbers:?}");
}

/// The webhooks must be called for their own kinds only, and for every create and update of them.
#[test]
fn f42_webhooks_have_narrow_rules_and_two_replicas() {
    for file in [ALL, WEBHOOKS_ONLY] {
        let deployment = object_of(file, "Deployment", "di-webhook");
        assert!(deployment["spec"]["replicas"].as_i64() >= Some(2));
        for (kind, fails, resources) in [
            ("MutatingWebhookConfiguration", "Ignore", json!(["dijobs"])),
            (
                "ValidatingWebhookConfiguration",
                "Fail",
                json!(["dijobs", "aggregatorconfigs"]),
            ),
        ] {
            let webhooks = object_of(file, kind, "di-webhook")["webhooks"].take();
            let [webhook] = &webhooks.as_array().unwrap()[..] else {
                panic!("{webhooks}")
            };
            assert_eq!(webhook["failurePolicy"], fails);
            assert_eq!(webhook["sideEffects"], "None");
            assert!(webhook["timeoutSeconds"].as_i64() <= Some(10));
            assert_eq!(
                webhook["rules"],
                json!([{
                    "apiGroups": ["diengine.opendilab.org"],
                    "apiVersions": ["v1alpha1", "v1alpha2"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": resources,
                    "scope": "Namespaced",
                }])
            );
        }
    }
}

#[test]
fn webhook_only_policy_admits_api_server_and_monitoring() {
    let policy = object_of(WEBHOOKS_ONLY, "NetworkPolicy", "di-orchestrator");
    let spec = &policy["spec"];
    let pod = object_of(WEBHOOKS_ONLY, "Deployment", "di-webhook")["spec"]["template"].take();
    let selected = &spec["podSelector"]["matchLabels"];
    assert_eq!(selected, &pod["metadata"]["labels"]);
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    let monitoring = json!({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}});
    assert_eq!(
        spec["ingress"],
        json!([
            {"ports": [{"port": "webhook", "protocol": "TCP"}]},
            {
                "ports": [{"port": "metrics", "protocol": "TCP"}],
                "from": [{"namespaceSelector": monitoring}],
            },
        ])
    );
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let ports = containers
        .iter()
        .flat_map(|c| c["ports"].as_array().unwrap());
    let ports: Vec<_> = ports.map(|port| &port["name"]).collect();
    assert_eq!(ports, ["webhook", "metrics"]);
    // DNS and the API server.
    let to = |port: u16, protocol: &str| json!({"port": port, "protocol": protocol});
    assert_eq!(
        spec["egress"],
        json!([{"ports": [to(53, "UDP"), to(53, "TCP"), to(443, "TCP"), to(6443, "TCP")]}])
    );
}

/// Returns every granted rule with its scope.
fn granted_rules(file: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for binding in objects_of(file) {
        let namespace = match binding["kind"].as_str() {
            Some("ClusterRoleBinding") => "everywhere",
            Some("RoleBinding") => binding["metadata"]["namespace"].as_str().unwrap(),
            _ => continue,
        };
        let account = json!([{"kind": "ServiceAccount", "name": "di-orchestrator", "namespace": "di-system"}]);
        assert_eq!(binding["subjects"], account);
        let role = &binding["roleRef"];
        let kind = role["kind"].as_str().unwrap();
        let role = object_of(file, kind, role["name"].as_str().unwrap());
        assert!(role["aggregationRule"].is_null(), "{role}");
        for rule in role["rules"].as_array().unwrap() {
            all.insert(format!("{namespace}: {rule}"));
        }
    }
    all
}

#[test]
fn webhook_only_role_has_minimal_rules() {
    let rule = |namespace: &str, group: &str, resources: Value, name: &str, verbs: Value| {
        let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        if !name.is_empty() {
            rule["resourceNames"] = json!([name]);
        }
        format!("{namespace}: {rule}")
    };
    let configurations = json!([
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations"
    ]);
    let expected = BTreeSet::from([
        rule(
            "everywhere",
            "admissionregistration.k8s.io",
            configurations,
            "di-webhook",
            json!(["get", "patch"]),
        ),
        rule(
            "everywhere",
            "authorization.k8s.io",
            json!(["subjectaccessreviews"]),
            "",
            json!(["create"]),
        ),
        rule(
            "di-system",
            "",
            json!(["secrets"]),
            "di-webhook-cert",
            json!(["get", "update"]),
        ),
        rule("di-system", "", json!(["secrets"]), "", json!(["create"])),
    ]);
    assert_eq!(granted_rules(WEBHOOKS_ONLY), expected);
    let pod =
        object_of(WEBHOOKS_ONLY, "Deployment", "di-webhook")["spec"]["template"]["spec"].take();
    assert_eq!(pod["serviceAccountName"], "di-orchestrator");
    let more = granted_rules(ALL);
    assert!(more.is_superset(&expected), "both keep a certificate alike");
}

#[test]
fn user_roles_are_aggregated_in_both_installations() {
    for (name, aggregates) in [
        ("view", &["view", "edit", "admin"][..]),
        ("edit", &["edit", "admin"][..]),
    ] {
        let labels = aggregates.iter().map(|role| {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
            (label, json!("true"))
        });
        let labels = Value::Object(labels.collect());
        for file in [ALL, WEBHOOKS_ONLY] {
            let role = object_of(file, "ClusterRole", &format!("di-orchestrator-{name}"));
            assert_eq!(role["metadata"]["labels"], labels, "{file}: {name}");
        }
    }
}

#[test]
fn f43_containers_are_unprivileged_with_memory_limit_only() {
    for (file, names) in [
        (ALL, &["manager", "replicas"][..]),
        (WEBHOOKS_ONLY, &["manager"][..]),
    ] {
        let (pod, containers) = containers_of(file);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        let found: Vec<_> = containers.iter().map(|one| &one["name"]).collect();
        assert_eq!(found, names, "{file}");
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
}

/// Fails if the object has a field that its kind does not have.
fn check_fields<T: DeserializeOwned + Serialize>(object: &Value) {
    let read: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(&serde_json::to_value(read).unwrap(), object);
}

#[test]
fn availability_overlay_sets_budget_and_priority() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/availability");
    let read = |file: &str| -> Value {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    };
    let overlay = read("kustomization.yaml");
    let resources = overlay["resources"].as_array().unwrap();
    let [base, own @ ..] = &resources[..] else {
        panic!("{resources:?}")
    };
    assert_eq!(base, "../default");
    let own: Vec<_> = own
        .iter()
        .map(|file| read(file.as_str().unwrap()))
        .collect();
    let [budget, class] = &own[..] else {
        panic!("{own:?}")
    };
    assert_eq!(budget["apiVersion"], "policy/v1");
    check_fields::<PodDisruptionBudget>(budget);
    assert_eq!(class["apiVersion"], "scheduling.k8s.io/v1");
    check_fields::<PriorityClass>(class);
    assert_eq!(class["globalDefault"], false);

    let patches = overlay["patches"].as_array().unwrap();
    let [patch] = &patches[..] else {
        panic!("{patches:?}")
    };
    let patch: Value = serde_saphyr::from_str(patch["patch"].as_str().unwrap()).unwrap();
    let set = json!({"template": {"spec": {"priorityClassName": class["metadata"]["name"]}}});
    assert_eq!(patch["spec"], set);
    for file in [ALL, WEBHOOKS_ONLY] {
        let name = patch["metadata"]["name"].as_str().unwrap();
        let deployment = object_of(file, patch["kind"].as_str().unwrap(), name);
        assert_eq!(patch["apiVersion"], deployment["apiVersion"]);
        let namespace = &deployment["metadata"]["namespace"];
        assert_eq!(&patch["metadata"]["namespace"], namespace);
        assert_eq!(&budget["metadata"]["namespace"], namespace);
        let (budget, deployment) = (&budget["spec"], &deployment["spec"]);
        assert_eq!(budget["selector"], deployment["selector"]);
        // A budget of all replicas would block every drain.
        let kept = budget["minAvailable"].as_i64().unwrap();
        let all = deployment["replicas"].as_i64().unwrap();
        assert!(0 < kept && kept < all, "{kept} of {all}");
    }
}
