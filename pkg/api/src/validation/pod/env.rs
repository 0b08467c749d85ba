//! Environment variables of a container.

use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, EnvVarSource, FileKeySelector, ObjectFieldSelector, PodSpec,
    ResourceFieldSelector,
};

use super::quantities;
use crate::quantity::{NANOS_PER_UNIT, parse_nanos};
use crate::validation::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{check_one_of, check_relative_path, check_required},
};

/// Pod fields that a variable can refer to.
const POD_FIELDS: [&str; 9] = [
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
/// Container resources that a variable can refer to.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Divisors of amounts of bytes.
const BYTE_DIVISORS: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";

/// Checks names and sources of a container's variables.
pub(super) fn check_variables(
    container: &Container,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let field = field.child("env").index(i);
        let name = field.child("name");
        if check_required(&variable.name, &name, "must not be empty", faults) {
            // The user may have put the value into the name. Hide it, because others may read the
            // message.
            let before = variable.name.split_once('=');
            let shown = before.map(|(before, _)| format!("{before}=..."));
            let shown = shown.as_deref().unwrap_or(&variable.name);
            names::check_env_name(shown, &name, faults);
        }
        if let Some(source) = &variable.value_from {
            let field = field.child("valueFrom");
            if variable.value.as_ref().is_some_and(|v| !v.is_empty()) {
                let why = "may not be specified when `value` is not empty";
                faults.push(Fault::invalid(field, "", why));
            }
            check_source(source, pod, &field, faults);
        }
    }
    for (i, source) in container.env_from.iter().flatten().enumerate() {
        check_env_from(source, &field.child("envFrom").index(i), faults);
    }
}

fn check_source(source: &EnvVarSource, pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
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
    if let Some(selector) = &source.field_ref {
        check_field(selector, &POD_FIELDS, &field.child("fieldRef"), faults);
    }
    if let Some(resource) = &source.resource_field_ref {
        check_resource(
            resource,
            Some(pod),
            &field.child("resourceFieldRef"),
            faults,
        );
    }
    if let Some(file) = &source.file_key_ref {
        check_file(file, &field.child("fileKeyRef"), faults);
    }
    let config_map = source.config_map_key_ref.as_ref();
    let secret = source.secret_key_ref.as_ref();
    let config_map = config_map.map(|s| ("configMapKeyRef", &s.name, s.optional, &s.key));
    let secret = secret.map(|s| ("secretKeyRef", &s.name, s.optional, &s.key));
    for (source, name, optional, key) in config_map.into_iter().chain(secret) {
        let field = field.child(source);
        let place = field.child("name");
        check_required(name, &place, "the object that holds it", faults);
        names::check_referenced_name(name, optional, &place, faults);
        let path = field.child("key");
        if check_required(key, &path, "the key of the value", faults) {
            names::check_config_key(key, &path, faults);
        }
    }
}

/// Checks a reference to a value in a file of a volume.
fn check_file(file: &FileKeySelector, field: &Path<'_>, faults: &mut Faults) {
    for (name, text, description) in [
        (
            "volumeName",
            &file.volume_name,
            "the volume that the file is in",
        ),
        ("path", &file.path, "the file of the value"),
        ("key", &file.key, "the key of the value"),
    ] {
        check_required(text, &field.child(name), description, faults);
    }
    check_relative_path(&file.path, &field.child("path"), faults);
}

/// Checks a reference to a pod field: one of `known`, or a label or annotation.
pub(super) fn check_field(
    selector: &ObjectFieldSelector,
    known: &[&str],
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let path = selector.field_path.as_str();
    let field = &field.child("fieldPath");
    if !check_required(path, field, "the field of the pod", faults) {
        return;
    }
    let version = selector.api_version.as_deref().unwrap_or_default();
    if !["", "v1"].contains(&version) {
        let why = format_args!("error converting fieldPath: unsupported pod version: {version}");
        faults.push(Fault::invalid(field, path, why));
        return;
    }
    let key = |start| path.strip_prefix(start)?.strip_suffix("']");
    // Annotation keys may have an upper-case prefix.
    if let Some(label) = key("metadata.labels['") {
        names::check_qualified_name(label, field, faults);
    } else if let Some(annotation) = key("metadata.annotations['") {
        names::check_qualified_name(&annotation.to_lowercase(), field, faults);
    } else {
        check_one_of(Some(path), known, field, faults);
    }
}

/// Checks a reference to a container's resource. Without `pod` the container name is not checked.
pub(super) fn check_resource(
    source: &ResourceFieldSelector,
    pod: Option<&PodSpec>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let path = field.child("resource");
    let resource = source.resource.as_str();
    let huge = ["limits.hugepages-", "requests.hugepages-"];
    if check_required(resource, &path, "as limits.cpu", faults)
        && !huge.iter().any(|huge| resource.starts_with(huge))
    {
        check_one_of(Some(resource), &RESOURCES, &path, faults);
    }
    check_divisor(source, field, faults);
    let name = source.container_name.as_deref().unwrap_or_default();
    let has_container = |pod: &PodSpec| {
        let inits = pod.init_containers.iter().flatten();
        inits.chain(&pod.containers).any(|c| c.name == name)
    };
    if !name.is_empty() && !pod.is_none_or(has_container) {
        faults.push(Fault::not_found(field.child("containerName"), name));
    }
}

/// Checks the divisor, the unit of the value.
fn check_divisor(source: &ResourceFieldSelector, field: &Path<'_>, faults: &mut Faults) {
    let Some(divisor) = &source.divisor else {
        return;
    };
    let field = field.child("divisor");
    let (_, resource) = source.resource.split_once('.').unwrap_or_default();
    let before = faults.len();
    quantities::check_quantity("cpu", divisor, &field, faults);
    let amount = parse_nanos(&divisor.0).unwrap_or_default();
    if faults.len() > before || amount == 0 {
        return;
    }
    let (units, name) = match resource {
        "cpu" => ("1m and 1", "cpu"),
        "memory" => (BYTE_DIVISORS, "memory"),
        "ephemeral-storage" => (BYTE_DIVISORS, "local ephemeral storage"),
        resource if resource.starts_with("hugepages-") => (BYTE_DIVISORS, "hugepages"),
        _ => return,
    };
    // The API server compares the formatted quantity, so other spellings of a unit are rejected.
    let text = divisor.0.as_str();
    let step: i128 = if text.ends_with('i') { 1024 } else { 1000 };
    let is_odd = text.starts_with('+')
        || text.ends_with('.')
        || text.contains(['e', 'E']) && !text.ends_with(['E', 'i']);
    let is_unit = if resource == "cpu" {
        [NANOS_PER_UNIT / 1000, NANOS_PER_UNIT].contains(&amount)
    } else {
        (0..=6).any(|power| NANOS_PER_UNIT * step.pow(power) == amount)
    };
    let is_unit = is_unit && !is_odd;
    if !is_unit {
        let why =
            format_args!("only divisor's values {units} are supported with the {name} resource");
        faults.push(Fault::invalid(field, divisor.0.as_str(), why));
    }
}

fn check_env_from(source: &EnvFromSource, field: &Path<'_>, faults: &mut Faults) {
    if let Some(prefix) = source.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        names::check_env_name(prefix, &field.child("prefix"), faults);
    }
    let config_map = source.config_map_ref.as_ref();
    let config_map = config_map.map(|s| ("configMapRef", &s.name));
    let secret = source.secret_ref.as_ref();
    let secret = secret.map(|s| ("secretRef", &s.name));
    let why = match (config_map, secret) {
        (None, None) => "must specify one of: `configMapRef` or `secretRef`",
        (Some(_), Some(_)) => "may not have more than one field specified at a time",
        _ => "",
    };
    if !why.is_empty() {
        faults.push(Fault::invalid(field, "", why));
    }
    for (source, name) in config_map.into_iter().chain(secret) {
        let field = field.child(source);
        names::check_object_name(Some(name), &field.child("name"), faults);
        check_required(
            name,
            &field.child("name"),
            "the object that holds them",
            faults,
        );
    }
}
