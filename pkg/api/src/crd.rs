use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSON,
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{AggregatorConfig, DIJob, names};

/// The definitions of both kinds, ready to be applied.
///
/// They stay below the 262,144 bytes that client-side `kubectl apply` can store in its annotation: what Kubernetes' own types say of
/// themselves is stripped, and the legacy version leaves its schema open but for the defaults.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [DIJob::crd(), AggregatorConfig::crd()].map(served)
}

/// Properties of the spec that are Kubernetes' own types.
const FOREIGN: [&str; 2] = ["template", "volumes"];

fn served(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        keep_unknown_beside_spec(version);
        if let Some(spec) = schema_of(version, "spec") {
            strip_foreign_descriptions(spec);
            keep_unknown_fields(spec);
            take_empty_texts(spec);
        }
        if let Some(status) = schema_of(version, "status") {
            strip_foreign_descriptions(status);
        }
    }
    let legacy: Vec<_> = crd.spec.versions.iter().map(legacy_of).collect();
    crd.spec.versions.extend(legacy);
    crd
}

fn schema_of<'a>(
    version: &'a mut CustomResourceDefinitionVersion,
    part: &str,
) -> Option<&'a mut JSONSchemaProps> {
    version
        .schema
        .as_mut()?
        .open_api_v3_schema
        .as_mut()?
        .properties
        .as_mut()?
        .get_mut(part)
}

fn children(schema: &mut JSONSchemaProps) -> impl Iterator<Item = (&str, &mut JSONSchemaProps)> {
    let items = match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(("items", &mut **items)),
        _ => None,
    };
    schema
        .properties
        .iter_mut()
        .flatten()
        .map(|(name, child)| (name.as_str(), child))
        .chain(items)
}

fn strip_foreign_descriptions(schema: &mut JSONSchemaProps) {
    for (name, child) in children(schema) {
        if FOREIGN.contains(&name) {
            strip_descriptions(child);
        } else {
            strip_foreign_descriptions(child);
        }
    }
}

fn strip_descriptions(schema: &mut JSONSchemaProps) {
    schema.description = None;
    if let Some(values) = &mut schema.additional_properties
        && let JSONSchemaPropsOrBool::Schema(values) = values
    {
        strip_descriptions(values);
    }
    for (_, child) in children(schema) {
        strip_descriptions(child);
    }
}

/// Every level keeps what it does not know, so that the webhook sees a misspelt field instead of the server dropping it.
fn keep_unknown_fields(schema: &mut JSONSchemaProps) {
    if schema.type_.as_deref() == Some("object") && schema.properties.is_some() {
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    for (_, child) in children(schema) {
        keep_unknown_fields(child);
    }
}

/// Servers of 1.20 take an empty text for null, and refuse it where null is not allowed: `env: [{name: A, value: ""}]`, an empty label.
fn take_empty_texts(schema: &mut JSONSchemaProps) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, child) in children(schema) {
        if !required.iter().any(|required| required == name) {
            allow_empty_text(child);
        }
        take_empty_texts(child);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        allow_empty_text(values);
        take_empty_texts(values);
    }
}

fn allow_empty_text(schema: &mut JSONSchemaProps) {
    if schema.type_.as_deref() == Some("string") && schema.enum_.is_none() {
        schema.nullable = Some(true);
    }
}

/// So that a misspelt `spec` is seen too.
fn keep_unknown_beside_spec(version: &mut CustomResourceDefinitionVersion) {
    let schema = version.schema.as_mut();
    if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
        root.x_kubernetes_preserve_unknown_fields = Some(true);
    }
}

/// The version that older manifests name: the same fields, of which only the defaults are spelt out, and what keeps a scale from storing a job
/// that cannot be read: it names a count alone, of whatever job.
fn legacy_of(version: &CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion {
    let root = version
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    CustomResourceDefinitionVersion {
        name: names::LEGACY_VERSION.to_owned(),
        storage: false,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: root.map(|root| {
                let mut open = defaults_of(root).unwrap_or_else(open_object);
                for part in ["spec", "status"] {
                    if root
                        .properties
                        .iter()
                        .flatten()
                        .any(|(name, _)| name == part)
                    {
                        let properties = open.properties.get_or_insert_default();
                        properties
                            .entry(part.to_owned())
                            .or_insert_with(open_object);
                    }
                }
                open
            }),
        }),
        ..version.clone()
    }
}

fn open_object() -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    }
}

/// The part of a schema that leads to defaults, everything else left open.
fn defaults_of(schema: &JSONSchemaProps) -> Option<JSONSchemaProps> {
    if let Some(JSON(default)) = &schema.default
        && !default.is_object()
    {
        return Some(JSONSchemaProps {
            type_: schema.type_.clone(),
            nullable: schema.nullable,
            default: schema.default.clone(),
            minimum: schema.minimum,
            maximum: schema.maximum,
            ..JSONSchemaProps::default()
        });
    }
    let properties: std::collections::BTreeMap<_, _> = schema
        .properties
        .iter()
        .flatten()
        .filter(|(name, _)| !FOREIGN.contains(&name.as_str()) && *name != "status")
        .filter_map(|(name, child)| Some((name.clone(), defaults_of(child)?)))
        .collect();
    let of_template = |name: &&String| *name == "template";
    let required = schema.required.iter().flatten().find(of_template);
    (!properties.is_empty()).then(|| JSONSchemaProps {
        properties: Some(properties),
        required: required.map(|template| vec![template.clone()]),
        nullable: schema.nullable,
        ..open_object()
    })
}
