//! Checks of single values that many fields share.

use std::fmt::Display;

use super::{
    fault::{Fault, Faults},
    path::Path,
};

/// Requires a string that is not empty; returns whether it is. `description` names it in the
/// message.
pub(super) fn check_required(
    value: &str,
    field: &Path<'_>,
    description: impl Display,
    faults: &mut Faults,
) -> bool {
    if value.is_empty() {
        faults.push(Fault::required(field, description));
    }
    !value.is_empty()
}

/// Requires one of the supported values if the field is set and not empty, because Kubernetes
/// defaults an empty value.
pub(super) fn check_one_of(
    value: Option<&str>,
    supported: &[&str],
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let value = value.filter(|value| !value.is_empty());
    check_optional_one_of(value, supported, field, faults);
}

/// Requires one of the supported values if the field is set; Kubernetes rejects an empty value.
pub(super) fn check_optional_one_of(
    value: Option<&str>,
    supported: &[&str],
    field: &Path<'_>,
    faults: &mut Faults,
) {
    if let Some(value) = value.filter(|value| !supported.contains(value)) {
        faults.push(Fault::not_supported(field, value, supported));
    }
}

/// Requires a number of at least 0 if the field is set.
pub(super) fn check_not_negative(
    value: Option<impl Into<i64>>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    if let Some(value) = value.map(Into::into).filter(|value| *value < 0) {
        let why = "must be greater than or equal to 0";
        faults.push(Fault::invalid(field, value, why));
    }
}

/// Requires a number within inclusive bounds if the field is set.
pub(super) fn check_between(
    value: Option<impl Into<i64>>,
    (least, most): (i64, i64),
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let outside = |value: &i64| !(least..=most).contains(value);
    if let Some(value) = value.map(Into::into).filter(outside) {
        let why = format_args!("must be between {least} and {most}, inclusive");
        faults.push(Fault::invalid(field, value, why));
    }
}

/// Requires a relative path without `..`.
pub(super) fn check_relative_path(path: &str, field: &Path<'_>, faults: &mut Faults) {
    if path.starts_with('/') {
        faults.push(Fault::invalid(field, path, "must be a relative path"));
    }
    check_no_backsteps(path, field, faults);
}

/// Requires a path without `..`.
pub(super) fn check_no_backsteps(path: &str, field: &Path<'_>, faults: &mut Faults) {
    if path.split('/').any(|part| part == "..") {
        faults.push(Fault::invalid(field, path, "must not contain '..'"));
    }
}

/// Requires exactly one of several fields. `present` says for each whether it is set; `kind` names
/// them in messages.
pub(super) fn check_exactly_one(
    present: &[(&str, bool)],
    kind: &str,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let mut set = present.iter().filter(|(_, is_set)| *is_set);
    if set.next().is_none() {
        faults.push(Fault::required(
            field,
            format_args!("must specify a {kind} type"),
        ));
    }
    faults.extend(set.map(|(name, _)| {
        let why = format_args!("may not specify more than 1 {kind} type");
        Fault::forbidden(field.child(name), why)
    }));
}
