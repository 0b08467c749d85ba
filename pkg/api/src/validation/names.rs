use super::Fault;
use crate::names;

const LABEL_LEN: usize = names::MAX_POD_NAME_LEN;
const SUBDOMAIN_LEN: usize = 253;
const PORT_NAME_LEN: usize = 15;

/// The job's own name, from which those of its pods and services are derived.
pub(super) fn check_job_name(name: &str, faults: &mut Vec<Fault>) {
    // With generateName the server fills the name in later, and asks again.
    if name.is_empty() {
        return;
    }
    let limit = names::max_job_name_len();
    if name.len() > limit {
        faults.push(Fault::invalid(
            "metadata.name",
            name,
            format_args!(
                "must be no more than {limit} characters, because the names of its pods and services are derived from it"
            ),
        ));
    }
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_well || !name.chars().all(is_label_char) {
        faults.push(Fault::invalid(
            "metadata.name",
            name,
            "must consist of lower case letters, digits or '-' and start with a letter, because its services are named after it (a DNS-1035 label)",
        ));
    }
}

/// A name that must be there, and a DNS label.
pub(super) fn check_label_name(name: &str, field: &str, faults: &mut Vec<Fault>) {
    if name.is_empty() {
        faults.push(Fault::required(field, "it needs a name"));
    } else {
        refuse(name, field, dns_label(name), faults);
    }
}

/// A name that another name of the same list must not repeat.
pub(super) fn check_unique<'a>(
    earlier: impl IntoIterator<Item = &'a str>,
    name: &str,
    field: &str,
    faults: &mut Vec<Fault>,
) {
    if !name.is_empty() && earlier.into_iter().any(|other| other == name) {
        faults.push(Fault::duplicate(field, name));
    }
}

/// The name of a priority class.
pub(super) fn check_priority_class(name: &str, faults: &mut Vec<Fault>) {
    if !name.is_empty() {
        let field = "spec.priorityClassName";
        refuse(name, field, dns_subdomain(name), faults);
    }
}

/// The group of a job, which people select jobs by.
pub(super) fn check_group(group: &str, faults: &mut Vec<Fault>) {
    refuse(group, "spec.group", label_value(group), faults);
}

/// The name of a port.
pub(super) fn check_port_name(name: &str, field: &str, faults: &mut Vec<Fault>) {
    refuse(name, field, port_name(name), faults);
}

fn refuse(name: &str, field: &str, why: Vec<&'static str>, faults: &mut Vec<Fault>) {
    faults.extend(why.into_iter().map(|why| Fault::invalid(field, name, why)));
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

fn is_dns_label(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(is_label_char)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn broken(rules: &[(bool, &'static str)]) -> Vec<&'static str> {
    let broken = rules.iter().filter(|(holds, _)| !holds);
    broken.map(|(_, message)| *message).collect()
}

fn dns_label(name: &str) -> Vec<&'static str> {
    broken(&[
        (
            name.len() <= LABEL_LEN,
            "must be no more than 63 characters",
        ),
        (
            is_dns_label(name),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
    ])
}

fn dns_subdomain(name: &str) -> Vec<&'static str> {
    broken(&[
        (
            name.len() <= SUBDOMAIN_LEN,
            "must be no more than 253 characters",
        ),
        (
            name.split('.').all(is_dns_label),
            r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
    ])
}

fn label_value(value: &str) -> Vec<&'static str> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let at_the_ends = |c: char| c.is_ascii_alphanumeric();
    let well_formed = value.chars().all(inner)
        && (value.is_empty() || (value.starts_with(at_the_ends) && value.ends_with(at_the_ends)));
    broken(&[
        (
            value.len() <= LABEL_LEN,
            "must be no more than 63 characters",
        ),
        (
            well_formed,
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ])
}

fn port_name(name: &str) -> Vec<&'static str> {
    broken(&[
        (
            name.len() <= PORT_NAME_LEN,
            "must be no more than 15 characters",
        ),
        (
            name.chars().all(is_label_char),
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
