use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    fault::{Fault, Faults},
    path::Path,
};
use crate::names;

const MAX_LABEL_LEN: usize = names::MAX_POD_NAME_LEN;
const MAX_SUBDOMAIN_LEN: usize = 253;
const LABEL_LEN_RULE: &str = "must be no more than 63 characters";
const SUBDOMAIN_RULE: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// Length of the suffix that the API server appends to `generateName`.
const GENERATED_SUFFIX_LEN: usize = 5;
/// Length to which the API server truncates `generateName`.
const MAX_GENERATED_PREFIX: usize = 58;

/// Checks the job's name, from which the names of its pods and services are derived, or its
/// `generateName`. The API server generates the name before it calls the webhooks.
pub(super) fn check_job_name(metadata: &ObjectMeta, max_len: usize, faults: &mut Faults) {
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
    let limit = max_len - rest;
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
pub(super) fn check_object_name(name: &str, field: &Path<'_>, faults: &mut Faults) {
    if !name.is_empty() {
        push_invalid(name, field, dns_subdomain(name), faults);
    }
}

/// Checks the name of another object that is also the value of a label, if it is not empty.
pub(super) fn check_name_in_label(name: &str, field: &Path<'_>, faults: &mut Faults) {
    if !name.is_empty() {
        let messages = broken_rules(&[
            (name.len() <= MAX_LABEL_LEN, LABEL_LEN_RULE),
            (is_dns_subdomain(name), SUBDOMAIN_RULE),
        ]);
        push_invalid(name, field, messages, faults);
    }
}

/// Checks the key of a label if it is not empty.
pub(super) fn check_label_key(key: &str, field: &Path<'_>, faults: &mut Faults) {
    if !key.is_empty() && !is_label_key(key) {
        let why = "must be the key of a node label, such as topology.kubernetes.io/rack";
        faults.push(Fault::invalid(field, key, why));
    }
}

/// Checks a name that is also the value of a label if it is not empty. Unlike the names of objects,
/// it may have upper case letters.
pub(super) fn check_label_value(value: &str, field: &Path<'_>, faults: &mut Faults) {
    if !value.is_empty() && !is_label_value(value) {
        let why = "must be the value of a label: no more than 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends";
        faults.push(Fault::invalid(field, value, why));
    }
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
        (name.len() <= MAX_LABEL_LEN, LABEL_LEN_RULE),
        (
            is_dns_label(name),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
    ])
}

fn is_dns_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns_label)
}

fn is_label_key(key: &str) -> bool {
    let is_prefix = |prefix: &str| prefix.len() <= MAX_SUBDOMAIN_LEN && is_dns_subdomain(prefix);
    match key.split_once('/') {
        Some((prefix, name)) => is_prefix(prefix) && is_label_value(name),
        None => is_label_value(key),
    }
}

/// Whether this is the value of a label, or its key without a prefix.
fn is_label_value(text: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let is_end = |end: Option<u8>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_LABEL_LEN
        && text.bytes().all(is_inner)
        && is_end(text.bytes().next())
        && is_end(text.bytes().next_back())
}

fn dns_subdomain(name: &str) -> Vec<&'static str> {
    broken_rules(&[
        (
            name.len() <= MAX_SUBDOMAIN_LEN,
            "must be no more than 253 characters",
        ),
        (is_dns_subdomain(name), SUBDOMAIN_RULE),
    ])
}
