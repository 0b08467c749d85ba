//! The CRDs in the manifests.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use serde_json::Value;

/// Maximum size in bytes of a CRD. Client-side `kubectl apply` stores it in an annotation of at most
/// 262,144 bytes; the rest is for more templates.
const SIZE_LIMIT: usize = 200_000;

fn crds() -> Vec<Value> {
    di_api::crds()
        .iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .collect()
}

#[test]
fn manifests_match_types() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/crds");
    for crd in crds() {
        let path = format!(
            "{dir}/{}.yaml",
            crd["spec"]["names"]["plural"].as_str().unwrap()
        );
        let written: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(written == crd, "{path} has drifted: run `make generate`");
    }
}

#[test]
fn crd_size_fits_client_side_apply() {
    for crd in crds() {
        let size = crd.to_string().len();
        assert!(
            size < SIZE_LIMIT,
            "{} takes {size} bytes",
            crd["metadata"]["name"]
        );
    }
}

#[test]
fn formats_are_known_to_api_server() {
    fn formats(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(format)) = map.get("format") {
                    found.push(format.clone());
                }
                map.values().for_each(|value| formats(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| formats(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for crd in &crds() {
        formats(crd, &mut found);
    }
    found.retain(|format| !["int32", "int64", "date-time", "byte"].contains(&format.as_str()));
    assert!(found.is_empty(), "{found:?}");
}

/// The snapshot is the interface of users and programs, without the embedded Kubernetes types.
#[test]
fn schema_without_kubernetes_types_matches_snapshot() {
    fn prune(value: &mut Value) {
        if let Value::Object(map) = value {
            for (key, child) in map.iter_mut() {
                if ["template", "volumes"].contains(&key.as_str()) {
                    *child = Value::from("…");
                } else {
                    prune(child);
                }
            }
        } else if let Value::Array(items) = value {
            items.iter_mut().for_each(prune);
        }
    }
    for mut crd in crds() {
        prune(&mut crd);
        let name = crd["spec"]["names"]["plural"].as_str().unwrap().to_owned();
        insta::assert_snapshot!(name, serde_saphyr::to_string(&crd).unwrap());
    }
}

/// Server-side apply merges the entries of these lists. See docs/decisions/0032.
#[test]
fn template_lists_are_merged_by_keys_of_kubernetes() {
    fn collect(schema: &Value, path: &str, found: &mut Vec<String>) {
        if schema["x-kubernetes-list-type"] == "map" {
            let keys: Vec<_> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .unwrap()
                .iter()
                .map(|key| key.as_str().unwrap())
                .collect();
            found.push(format!("{path}: {}", keys.join(", ")));
        }
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            collect(child, &format!("{path}.{name}"), found);
        }
        if schema["items"].is_object() {
            collect(&schema["items"], path, found);
        }
    }
    let dijob = &crds()[0];
    let spec = &dijob["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut jobs = Vec::new();
    collect(&spec["properties"]["volumes"], "volumes", &mut jobs);
    assert_eq!(jobs, ["volumes: name"]);
    let expected = [
        ".containers: name",
        ".containers.env: name",
        ".containers.ports: containerPort, protocol",
        ".containers.volumeDevices: devicePath",
        ".containers.volumeMounts: mountPath",
        ".hostAliases: ip",
        ".imagePullSecrets: name",
        ".initContainers: name",
        ".initContainers.env: name",
        ".initContainers.ports: containerPort, protocol",
        ".initContainers.volumeDevices: devicePath",
        ".initContainers.volumeMounts: mountPath",
        ".resourceClaims: name",
        ".schedulingGates: name",
        ".topologySpreadConstraints: topologyKey, whenUnsatisfiable",
        ".volumes: name",
    ];
    for role in ["coordinator", "collector", "learner"] {
        let template = &spec["properties"][role]["properties"]["template"];
        let mut found = Vec::new();
        collect(&template["properties"]["spec"], "", &mut found);
        assert_eq!(found, expected, "{role}");
    }
}

/// Otherwise the API server would drop misspelt fields before the webhook sees them.
#[test]
fn spec_preserves_unknown_fields_at_every_level() {
    fn check(schema: &Value, path: &str) {
        if schema["properties"].is_object() {
            let keeps = &schema["x-kubernetes-preserve-unknown-fields"];
            assert_eq!(keeps, true, "{path}");
        }
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            check(child, &format!("{path}.{name}"));
        }
        if schema["items"].is_object() {
            check(&schema["items"], &format!("{path}[]"));
        }
    }
    for crd in crds() {
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], "v1alpha2");
        check(
            &version["schema"]["openAPIV3Schema"]["properties"]["spec"],
            "spec",
        );
    }
}
