use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSON,
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{aggregator_config::AggregatorConfig, dijob::DIJob, names};

/// Returns the CRDs of both kinds, ready to be applied.
///
/// Client-side `kubectl apply` stores a CRD in an annotation of at most 262,144 bytes. Therefore the
/// schema describes only the upper levels of a pod template, without descriptions, and the schema of
/// the legacy version contains only the defaults.
// See docs/decisions/0032.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [DIJob::crd(), AggregatorConfig::crd()].map(finish_crd)
}

/// Properties of the spec with types of Kubernetes, and the number of levels that are described: up
/// to the fields of `template.spec.containers[].env[]` and of `volumes[].emptyDir`. The template of
/// a leader is not described: most leaders have the template of their role.
const KUBERNETES_TYPES: [(&str, usize); 3] =
    [("leaderTemplate", 0), ("template", 4), ("volumes", 2)];

/// Lists whose entries server-side apply merges, and their keys, as in the pods of Kubernetes. Claims
/// of resources are no such list: a container may use two requests of one claim.
const MERGED_LISTS: [(&str, &[&str]); 12] = [
    ("containers", &["name"]),
    ("env", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ports", &["containerPort", PROTOCOL]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// The only key that may be absent.
const PROTOCOL: &str = "protocol";

fn finish_crd(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        keep_unknown_root_fields(version);
        if let Some(spec) = part_schema(version, "spec") {
            keep_unknown_fields(spec);
            allow_empty_strings(spec);
            reduce_kubernetes_types(spec);
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

/// Returns the number of levels of a type of Kubernetes, or `None` for our own types.
fn described_levels(property: &str) -> Option<usize> {
    let mut types = KUBERNETES_TYPES.into_iter();
    types.find_map(|(name, levels)| (name == property).then_some(levels))
}

fn reduce_kubernetes_types(schema: &mut JSONSchemaProps) {
    for (name, child) in child_schemas(schema) {
        if let Some(levels) = described_levels(name) {
            // The description of the field itself is ours.
            let description = child.description.take();
            reduce_field(name, child, levels);
            child.description = description;
        } else {
            reduce_kubernetes_types(child);
        }
    }
}

/// Removes descriptions, deprecated fields, and all fields below this number of levels.
fn reduce_field(name: &str, schema: &mut JSONSchemaProps, levels: usize) {
    let merged = MERGED_LISTS.into_iter().find(|(list, _)| *list == name);
    let keys = merged.map_or(&[][..], |(_, keys)| keys);
    if !keys.is_empty() {
        schema.x_kubernetes_list_type = Some("map".to_owned());
        let keys = keys.iter().map(|&key| key.to_owned());
        schema.x_kubernetes_list_map_keys = Some(keys.collect());
    }
    reduce_value(schema, keys, levels);
}

fn reduce_value(schema: &mut JSONSchemaProps, keys: &[&str], levels: usize) {
    schema.description = None;
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        reduce_value(values, &[], levels);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        reduce_value(items, keys, levels);
    }
    let Some(mut properties) = schema.properties.take() else {
        return;
    };
    properties.retain(|name, field| levels > 0 && is_described(name, field));
    for (name, field) in &mut properties {
        reduce_field(name, field, levels.saturating_sub(1));
        if name == PROTOCOL && keys.contains(&PROTOCOL) {
            field.default = Some(JSON("TCP".into()));
            field.nullable = None; // A key must not be nullable.
        }
    }
    let required = schema.required.take().unwrap_or_default().into_iter();
    let required: Vec<_> = required
        .filter(|name| properties.contains_key(name))
        .collect();
    schema.required = (!required.is_empty()).then_some(required);
    schema.properties = (!properties.is_empty()).then_some(properties);
}

/// Whether a template may have this field and Kubernetes does not discourage it. Other fields are
/// preserved like unknown ones.
fn is_described(name: &str, field: &JSONSchemaProps) -> bool {
    let description = field.description.as_deref().unwrap_or_default();
    name != "ephemeralContainers" && !description.to_lowercase().contains("deprecated")
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
        .filter(|(name, _)| described_levels(name).is_none() && *name != "status")
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
