//! Checks of single values that many fields share.

use std::fmt::Display;

use super::{Fault, Path};

/// A text that must be there; whether it is.
pub(super) fn check_required(
    value: &str,
    field: &Path<'_>,
    what: impl Display,
    faults: &mut Vec<Fault>,
) -> bool {
    if value.is_empty() {
        faults.push(Fault::required(field, what));
    }
    !value.is_empty()
}

/// One of some words, where it is set at all.
pub(super) fn check_one_of(
    value: Option<&str>,
    supported: &[&str],
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    if let Some(value) = value.filter(|value| !value.is_empty() && !supported.contains(value)) {
        faults.push(Fault::not_supported(field, value, supported));
    }
}

/// One of some words, where it is set at all; an empty text is none of them.
pub(super) fn check_word(
    value: Option<&str>,
    supported: &[&str],
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    if let Some(value) = value.filter(|value| !supported.contains(value)) {
        faults.push(Fault::not_supported(field, value, supported));
    }
}

/// A number that is not negative, where it is set at all.
pub(super) fn check_not_negative(
    value: Option<impl Into<i64>>,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    if let Some(value) = value.map(Into::into).filter(|value| *value < 0) {
        let why = "must be greater than or equal to 0";
        faults.push(Fault::invalid(field, value, why));
    }
}

/// A number between two others, where it is set at all.
pub(super) fn check_between(
    value: Option<impl Into<i64>>,
    (least, most): (i64, i64),
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let outside = |value: &i64| !(least..=most).contains(value);
    if let Some(value) = value.map(Into::into).filter(outside) {
        let why = format_args!("must be between {least} and {most}, inclusive");
        faults.push(Fault::invalid(field, value, why));
    }
}

/// A path below some folder.
pub(super) fn check_relative_path(path: &str, field: &Path<'_>, faults: &mut Vec<Fault>) {
    if path.starts_with('/') {
        faults.push(Fault::invalid(field, path, "must be a relative path"));
    }
    check_no_backsteps(path, field, faults);
}

/// A path that does not leave its folder.
pub(super) fn check_no_backsteps(path: &str, field: &Path<'_>, faults: &mut Vec<Fault>) {
    if path.split('/').any(|part| part == "..") {
        faults.push(Fault::invalid(field, path, "must not contain '..'"));
    }
}

/// Exactly one of several fields, given with whether each is set; `kind` is what they are.
pub(super) fn check_exactly_one(
    present: &[(&str, bool)],
    kind: &str,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
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
        Fault::forbidden(field.at(name), why)
    }));
}
