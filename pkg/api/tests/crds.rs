//! The custom resource definitions as they are applied.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use serde_json::Value;

/// Client-side `kubectl apply` keeps the object in an annotation of this size at most, in bytes.
const ANNOTATION_LIMIT: usize = 262_144;

fn crds() -> Vec<Value> {
    di_api::crds()
        .iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .collect()
}

#[test]
fn manifests_are_what_the_types_say() {
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
fn each_fits_client_side_apply() {
    for crd in crds() {
        let size = crd.to_string().len();
        assert!(
            size < ANNOTATION_LIMIT,
            "{} takes {size} bytes",
            crd["metadata"]["name"]
        );
    }
}

#[test]
fn no_format_is_unknown_to_the_server() {
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

/// What people and other programs rely on, without the embedded Kubernetes types.
#[test]
fn our_own_part_of_the_schema_changes_on_purpose_only() {
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

/// Where the server would drop what it does not know, the webhook could not say what was misspelt.
#[test]
fn every_level_of_the_spec_keeps_unknown_fields() {
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
