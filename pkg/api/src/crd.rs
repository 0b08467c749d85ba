use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSON,
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{aggregator_config::AggregatorConfig, dijob::DIJob, names};

/// Returns the CRDs of both kinds, ready to be applied.
///
/// Each stays below 262,144 bytes, because client-side `kubectl apply` stores it in an annotation
/// of that size. Therefore the descriptions inside Kubernetes' own types are removed, and the schema
/// of the legacy version contains only the defaults.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [DIJob::crd(), AggregatorConfig::crd()].map(finish_crd)
}

/// Properties of the spec with types of Kubernetes.
const KUBERNETES_TYPES: [&str; 2] = ["template", "volumes"];

fn finish_crd(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        keep_unknown_root_fields(version);
        if let Some(spec) = part_schema(version, "spec") {
            strip_kubernetes_descriptions(spec);
            keep_unknown_fields(spec);
            allow_empty_strings(spec);
        }
        if let Some(status) = part_schema(version, "status") {
            strip_kubernetes_descriptions(status);
        }
    }
    let legacy: Vec<_> = crd.spec.versions.iter().map(legacy_version).collect();
    crd.spec.versions.extend(legacy);
    crd
}

fn part_schema<'a>(
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

fn child_schemas(
    schema: &mut JSONSchemaProps,
) -> impl Iterator<Item = (&str, &mut JSONSchemaProps)> {
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

fn strip_kubernetes_descriptions(schema: &mut JSONSchemaProps) {
    for (name, child) in child_schemas(schema) {
        if KUBERNETES_TYPES.contains(&name) {
            // The description of the field itself is ours.
            let own = child.description.take();
            strip_descriptions(child);
            child.description = own;
        } else {
            strip_kubernetes_descriptions(child);
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
    for (_, child) in child_schemas(schema) {
        strip_descriptions(child);
    }
}

/// Preserves unknown fields at every level: the webhook must see misspelt fields, which the server
/// would drop.
fn keep_unknown_fields(schema: &mut JSONSchemaProps) {
    if schema.type_.as_deref() == Some("object") && schema.properties.is_some() {
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    for (_, child) in child_schemas(schema) {
        keep_unknown_fields(child);
    }
}

/// API servers of 1.20 treat an empty string as null, and reject it unless the field is nullable:
/// `env: [{name: A, value: ""}]`, or an empty label.
fn allow_empty_strings(schema: &mut JSONSchemaProps) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, child) in child_schemas(schema) {
        if !required.iter().any(|required| required == name) {
            allow_null_string(child);
        }
        allow_empty_strings(child);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        allow_null_string(values);
        allow_empty_strings(values);
    }
}

fn allow_null_string(schema: &mut JSONSchemaProps) {
    if schema.type_.as_deref() == Some("string") && schema.enum_.is_none() {
        schema.nullable = Some(true);
    }
}

/// Preserves unknown fields of the object itself, so that the webhook sees a misspelt `spec`.
fn keep_unknown_root_fields(version: &mut CustomResourceDefinitionVersion) {
    let schema = version.schema.as_mut();
    if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
        root.x_kubernetes_preserve_unknown_fields = Some(true);
    }
}

/// Returns the version of older manifests. Its schema has the defaults, and the rules without which
/// the scale subresource, which sets a count in any job, could store an undecodable job.
// See docs/decisions/0003.
fn legacy_version(version: &CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion {
    let root = version
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    CustomResourceDefinitionVersion {
        name: names::LEGACY_VERSION.to_owned(),
        storage: false,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: root.map(|root| {
                let mut open = defaults_only(root).unwrap_or_else(open_object);
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

/// Reduces a schema to the fields with defaults, and leaves the rest open.
fn defaults_only(schema: &JSONSchemaProps) -> Option<JSONSchemaProps> {
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
        .filter(|(name, _)| !KUBERNETES_TYPES.contains(&name.as_str()) && *name != "status")
        .filter_map(|(name, child)| Some((name.clone(), defaults_only(child)?)))
        .collect();
    let is_template = |name: &&String| *name == "template";
    let required = schema.required.iter().flatten().find(is_template);
    (!properties.is_empty()).then(|| JSONSchemaProps {
        properties: Some(properties),
        required: required.map(|template| vec![template.clone()]),
        nullable: schema.nullable,
        ..open_object()
    })
}
