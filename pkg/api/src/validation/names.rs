use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    fault::{Fault, Faults},
    path::Path,
};
use crate::names;

const MAX_LABEL_LEN: usize = names::MAX_POD_NAME_LEN;
const MAX_SUBDOMAIN_LEN: usize = 253;
/// Length of the suffix that the API server appends to `generateName`.
const GENERATED_SUFFIX_LEN: usize = 5;
/// Length to which the API server truncates `generateName`.
const MAX_GENERATED_PREFIX: usize = 58;
const MAX_PORT_NAME_LEN: usize = 15;

/// Checks the job's name, from which the names of its pods and services are derived, or its
/// `generateName`. The API server generates the name before it calls the webhooks.
pub(super) fn check_job_name(metadata: &ObjectMeta, faults: &mut Faults) {
    let name = metadata.name.as_deref().unwrap_or_default();
    let prefix = metadata.generate_name.as_deref().unwrap_or_default();
    let kept = prefix.get(..MAX_GENERATED_PREFIX).unwrap_or(prefix);
    let is_generated = name
        .strip_prefix(kept)
        .is_some_and(|rest| rest.len() == GENERATED_SUFFIX_LEN);
    let (field, text, rest) = if !prefix.is_empty() && (name.is_empty() || is_generated) {
        ("metadata.generateName", prefix, GENERATED_SUFFIX_LEN)
    } else {
        ("metadata.name", name, 0)
    };
    // The API server itself rejects an object without both.
    if text.is_empty() {
        return;
    }
    let limit = names::max_job_name_len() - rest;
    if text.len() > limit {
        faults.push(Fault::invalid(
            field,
            text,
            format_args!(
                "must be no more than {limit} characters, because the names of its pods and services are derived from it"
            ),
        ));
    }
    let starts_with_letter = text.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_with_letter || !text.bytes().all(is_label_char) {
        faults.push(Fault::invalid(
            field,
            text,
            "must consist of lower case letters, digits or '-' and start with a letter, because its services are named after it (a DNS-1035 label)",
        ));
    }
}

/// Requires a DNS label.
pub(super) fn check_label_name(name: &str, field: &Path<'_>, faults: &mut Faults) {
    if name.is_empty() {
        faults.push(Fault::required(field, "must not be empty"));
    } else {
        push_invalid(name, field, dns_label(name), faults);
    }
}

/// Requires a name that is unique within its list; `earlier` has the previous names.
pub(super) fn check_unique<'a>(
    earlier: &mut HashSet<&'a str>,
    name: &'a str,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    if !name.is_empty() && !earlier.insert(name) {
        faults.push(Fault::duplicate(field, name));
    }
}

/// Checks the name of another object if it is not empty.
pub(super) fn check_object_name(name: Option<&str>, field: &Path<'_>, faults: &mut Faults) {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        check_subdomain(name, field, faults);
    }
}

/// Requires a DNS subdomain.
pub(super) fn check_subdomain(name: &str, field: &Path<'_>, faults: &mut Faults) {
    push_invalid(name, field, dns_subdomain(name), faults);
}

/// Checks the name of an object that the kubelet reads. An invalid name is allowed if the object is
/// optional, because it simply never exists.
pub(super) fn check_referenced_name(
    name: &str,
    optional: Option<bool>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    if optional != Some(true) {
        check_object_name(Some(name), field, faults);
    }
}

/// Checks a DNS label if it is not empty.
pub(super) fn check_optional_label_name(name: Option<&str>, field: &Path<'_>, faults: &mut Faults) {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        push_invalid(name, field, dns_label(name), faults);
    }
}

/// Checks the key of a label, an annotation, a taint or a resource.
pub(super) fn check_qualified_name(name: &str, field: &Path<'_>, faults: &mut Faults) {
    push_invalid(name, field, qualified_name(name), faults);
}

/// Checks the value of a label.
pub(super) fn check_label_value(value: &str, field: &Path<'_>, faults: &mut Faults) {
    push_invalid(value, field, label_value(value), faults);
}

/// Checks the name of an environment variable, or its prefix.
pub(super) fn check_env_name(name: &str, field: &Path<'_>, faults: &mut Faults) {
    push_invalid(name, field, env_name(name), faults);
}

/// Checks a key of a Secret or ConfigMap.
pub(super) fn check_config_key(key: &str, field: &Path<'_>, faults: &mut Faults) {
    push_invalid(key, field, config_key(key), faults);
}

/// Checks the name of a port.
pub(super) fn check_port_name(name: &str, field: &Path<'_>, faults: &mut Faults) {
    push_invalid(name, field, port_name(name), faults);
}

fn push_invalid(name: &str, field: &Path<'_>, messages: Vec<&'static str>, faults: &mut Faults) {
    faults.extend(
        messages
            .into_iter()
            .map(|why| Fault::invalid(field, name, why)),
    );
}

fn is_label_char(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'
}

fn is_dns_label(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(is_label_char)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn broken_rules(rules: &[(bool, &'static str)]) -> Vec<&'static str> {
    let broken = rules.iter().filter(|(holds, _)| !holds);
    broken.map(|(_, message)| *message).collect()
}

fn dns_label(name: &str) -> Vec<&'static str> {
    broken_rules(&[
        (
            name.len() <= MAX_LABEL_LEN,
            "must be no more than 63 characters",
        ),
        (
            is_dns_label(name),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
    ])
}

fn is_dns_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns_label)
}

fn dns_subdomain(name: &str) -> Vec<&'static str> {
    broken_rules(&[
        (
            name.len() <= MAX_SUBDOMAIN_LEN,
            "must be no more than 253 characters",
        ),
        (
            is_dns_subdomain(name),
            r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
    ])
}

fn is_key_char(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.')
}

fn is_qualified(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
    name.bytes().all(is_key_char)
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
}

fn qualified_name(name: &str) -> Vec<&'static str> {
    let (prefix, name) = match name.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, name),
    };
    if name.contains('/') {
        return vec![
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ];
    }
    let has_valid_prefix =
        prefix.is_none_or(|prefix| prefix.is_empty() || is_dns_subdomain(prefix));
    let has_short_prefix = prefix.is_none_or(|prefix| prefix.len() <= MAX_SUBDOMAIN_LEN);
    broken_rules(&[
        (prefix != Some(""), "prefix part must be non-empty"),
        (
            has_valid_prefix,
            r"prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            has_short_prefix,
            "prefix part must be no more than 253 characters",
        ),
        (!name.is_empty(), "name part must be non-empty"),
        (
            name.len() <= MAX_LABEL_LEN,
            "name part must be no more than 63 characters",
        ),
        (
            name.is_empty() || is_qualified(name),
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ])
}

const NO_DOT: &str = "must not be '.'";
const NO_DOTS: &str = "must not be '..' or start with '..'";

fn env_name(name: &str) -> Vec<&'static str> {
    broken_rules(&[
        (
            name.bytes().all(is_key_char) && !name.starts_with(|c: char| c.is_ascii_digit()),
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')",
        ),
        (name != ".", NO_DOT),
        (!name.starts_with(".."), NO_DOTS),
    ])
}

fn config_key(key: &str) -> Vec<&'static str> {
    broken_rules(&[
        (
            key.len() <= MAX_SUBDOMAIN_LEN,
            "must be no more than 253 characters",
        ),
        (
            key.bytes().all(is_key_char),
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ),
        (key != ".", NO_DOT),
        (!key.starts_with(".."), NO_DOTS),
    ])
}

fn label_value(value: &str) -> Vec<&'static str> {
    let is_valid = value.is_empty() || is_qualified(value);
    broken_rules(&[
        (
            value.len() <= MAX_LABEL_LEN,
            "must be no more than 63 characters",
        ),
        (
            is_valid,
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ])
}

fn port_name(name: &str) -> Vec<&'static str> {
    broken_rules(&[
        (
            name.len() <= MAX_PORT_NAME_LEN,
            "must be no more than 15 characters",
        ),
        (
            name.bytes().all(is_label_char),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            name.contains(|c: char| c.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (!name.contains("--"), "must not contain consecutive hyphens"),
        (
            !name.starts_with('-') && !name.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ])
}
