//! The environment of a container.

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource, ResourceFieldSelector};

use super::{
    Fault, Path,
    basic::{check_one_of, check_required},
    names,
};

/// What a variable may be told of its pod.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Names and sources of a container's variables.
pub(super) fn check(container: &Container, field: &Path<'_>, faults: &mut Vec<Fault>) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let field = field.item("env", i);
        let name = field.at("name");
        if check_required(&variable.name, &name, "it needs a name", faults) {
            names::check_env_name(&variable.name, &name, faults);
        }
        if let Some(source) = &variable.value_from {
            let field = field.at("valueFrom");
            if variable.value.as_ref().is_some_and(|v| !v.is_empty()) {
                let why = "may not be specified when `value` is not empty";
                faults.push(Fault::invalid(field, "", why));
            }
            check_source(source, &field, faults);
        }
    }
    for (i, source) in container.env_from.iter().flatten().enumerate() {
        check_from(source, &field.item("envFrom", i), faults);
    }
}

fn check_source(source: &EnvVarSource, field: &Path<'_>, faults: &mut Vec<Fault>) {
    let set = [
        source.config_map_key_ref.is_some(),
        source.field_ref.is_some(),
        source.file_key_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.secret_key_ref.is_some(),
    ];
    let why = match set.iter().filter(|is_set| **is_set).count() {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        }
        1 => "",
        _ => "may not have more than one field specified at a time",
    };
    if !why.is_empty() {
        faults.push(Fault::invalid(field, "", why));
    }
    if let Some(of_pod) = &source.field_ref {
        check_field_path(
            &of_pod.field_path,
            &FIELDS,
            &field.at("fieldRef").at("fieldPath"),
            faults,
        );
    }
    if let Some(resource) = &source.resource_field_ref {
        check_resource(resource, &field.at("resourceFieldRef"), faults);
    }
    let config_map = source.config_map_key_ref.as_ref();
    let secret = source.secret_key_ref.as_ref();
    let config_map = config_map.map(|s| ("configMapKeyRef", &s.name, &s.key));
    let secret = secret.map(|s| ("secretKeyRef", &s.name, &s.key));
    for (source, name, key) in config_map.into_iter().chain(secret) {
        let field = field.at(source);
        check_required(name, &field.at("name"), "the object that holds it", faults);
        let path = field.at("key");
        if check_required(key, &path, "the key of the value", faults) {
            names::check_config_key(key, &path, faults);
        }
    }
}

/// A field of the pod: one of `known`, or a label or an annotation.
pub(super) fn check_field_path(
    path: &str,
    known: &[&str],
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    if !check_required(path, field, "the field of the pod", faults) {
        return;
    }
    let keyed = ["metadata.labels['", "metadata.annotations['"];
    let key = keyed
        .iter()
        .find_map(|start| path.strip_prefix(start)?.strip_suffix("']"));
    match key {
        Some(key) => names::check_qualified_name(&key.to_lowercase(), field, faults),
        None => check_one_of(Some(path), known, field, faults),
    }
}

/// An amount of a container's resources.
pub(super) fn check_resource(
    source: &ResourceFieldSelector,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let path = field.at("resource");
    let resource = source.resource.as_str();
    let huge = ["limits.hugepages-", "requests.hugepages-"];
    if check_required(resource, &path, "as limits.cpu", faults)
        && !huge.iter().any(|huge| resource.starts_with(huge))
    {
        check_one_of(Some(resource), &RESOURCES, &path, faults);
    }
}

fn check_from(source: &EnvFromSource, field: &Path<'_>, faults: &mut Vec<Fault>) {
    if let Some(prefix) = source.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        names::check_env_name(prefix, &field.at("prefix"), faults);
    }
    let config_map = source
        .config_map_ref
        .as_ref()
        .map(|s| ("configMapRef", &s.name));
    let secret = source.secret_ref.as_ref().map(|s| ("secretRef", &s.name));
    let why = match (config_map, secret) {
        (None, None) => "must specify one of: `configMapRef` or `secretRef`",
        (Some(_), Some(_)) => "may not have more than one field specified at a time",
        _ => "",
    };
    if !why.is_empty() {
        faults.push(Fault::invalid(field, "", why));
    }
    for (source, name) in config_map.into_iter().chain(secret) {
        let field = field.at(source);
        check_required(
            name,
            &field.at("name"),
            "the object that holds them",
            faults,
        );
    }
}
