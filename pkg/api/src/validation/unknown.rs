use std::{collections::BTreeMap, sync::LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::Value;

use super::Fault;
use crate::names;

/// Fields of every object of ours.
const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
/// How alike two names must be, of 1, for one to be taken for the other.
const ALIKE: f64 = 0.88;
/// Longer values are cut in messages.
const SHOWN: usize = 80;

/// Schemas of the specs, by kind.
static SPECS: LazyLock<BTreeMap<String, JSONSchemaProps>> = LazyLock::new(|| {
    let spec_of = |versions: Vec<CustomResourceDefinitionVersion>| {
        let mut versions = versions.into_iter();
        let current = versions.find(|version| version.name == names::VERSION)?;
        let root = current.schema?.open_api_v3_schema?;
        root.properties?.remove("spec")
    };
    crate::crds()
        .into_iter()
        .filter_map(|crd| Some((crd.spec.names.kind, spec_of(crd.spec.versions)?)))
        .collect()
});

/// Every field of `object` that an object of this kind does not have, its status and metadata left aside.
pub(super) fn faults(kind: &str, object: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if !TOP.contains(&name.as_str()) {
            faults.push(unknown(name.clone(), name, value, TOP.into_iter()));
        }
    }
    if let Some(schema) = SPECS.get(kind) {
        walk(schema, &object["spec"], "spec", &mut faults);
    }
    faults
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, faults: &mut Vec<Fault>) {
    match value {
        Value::Object(fields) if schema.additional_properties.is_none() => {
            let Some(known) = &schema.properties else {
                return;
            };
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                if let Some(schema) = known.get(name) {
                    walk(schema, value, &path, faults);
                } else {
                    let known = known.keys().map(String::as_str);
                    faults.push(unknown(path, name, value, known));
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    walk(schema, item, &format!("{path}[{i}]"), faults);
                }
            }
        }
        _ => {}
    }
}

fn unknown<'a>(
    path: String,
    name: &str,
    value: &Value,
    known: impl Iterator<Item = &'a str>,
) -> Fault {
    let mut fault = match nearest(name, known) {
        Some(nearest) => Fault::invalid(
            path,
            Value::Null,
            format_args!("unknown field, did you mean {nearest}?"),
        ),
        None => Fault::invalid(path, Value::Null, "unknown field"),
    };
    fault.detail = fault.detail.replacen("null", &shown(value), 1);
    fault
}

fn shown(value: &Value) -> String {
    let whole = value.to_string();
    match whole.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &whole[..end]),
        None => whole,
    }
}

/// The known name that `name` was meant to be, if any is near.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    let written = plain(name);
    known
        .map(|known| (strsim::jaro_winkler(&written, &plain(known)), known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
