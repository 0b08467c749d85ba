use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};

use super::{Fault, names};
use crate::{GPU_RESOURCE, ReplicaResources};

const HUGE_PAGES: &str = "hugepages-";
const NANO: i128 = 1_000_000_000;
const NANO_DIGITS: i32 = 9;

/// Requests and limits of a container.
pub(super) fn check_requirements(
    requirements: &ResourceRequirements,
    field: &str,
    faults: &mut Vec<Fault>,
) {
    let nothing = BTreeMap::new();
    let requests = requirements.requests.as_ref().unwrap_or(&nothing);
    let limits = requirements.limits.as_ref().unwrap_or(&nothing);
    for (list, name) in [(limits, "limits"), (requests, "requests")] {
        for (resource, quantity) in list {
            let field = format!("{field}.{name}[{resource}]");
            check_resource_name(resource, &field, faults);
            check(resource, quantity, &field, faults);
        }
    }
    let has = |resource: &str| limits.contains_key(resource) || requests.contains_key(resource);
    let huge = |resource: &String| resource.starts_with(HUGE_PAGES);
    if limits.keys().chain(requests.keys()).any(huge) && !has("cpu") && !has("memory") {
        faults.push(Fault::forbidden(field, "HugePages require cpu or memory"));
    }
    for (resource, request) in requests {
        check_limit(resource, request, limits.get(resource), field, faults);
    }
}

/// The resources of a group of replicas.
pub(super) fn check_group(resources: &ReplicaResources, field: &str, faults: &mut Vec<Fault>) {
    for (resource, name, quantity) in [
        ("cpu", "cpus", &resources.cpus),
        (GPU_RESOURCE, "gpus", &resources.gpus),
        ("memory", "memory", &resources.memory),
    ] {
        if let Some(quantity) = quantity {
            check(resource, quantity, &format!("{field}.{name}"), faults);
        }
    }
}

/// One of Kubernetes' own, or one with the name of who brings it.
fn check_resource_name(resource: &str, field: &str, faults: &mut Vec<Fault>) {
    let known = ["cpu", "memory", "ephemeral-storage"];
    if resource.contains('/') {
        names::check_qualified_name(resource, field, faults);
    } else if !known.contains(&resource) && !resource.starts_with(HUGE_PAGES) {
        let why =
            format_args!("must be a standard resource type or fully qualified, as {GPU_RESOURCE}");
        faults.push(Fault::invalid(field, resource, why));
    }
}

/// Whether this is more than one.
pub(super) fn several(quantity: &Quantity) -> bool {
    parse(&quantity.0).is_some_and(|amount| amount > NANO)
}

/// Extended resources, GPUs among them, come in whole numbers and are not shared.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// An amount of a resource.
pub(super) fn check(resource: &str, quantity: &Quantity, field: &str, faults: &mut Vec<Fault>) {
    let why = match parse(&quantity.0) {
        None => {
            r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        }
        Some(amount) if amount < 0 => "must be greater than or equal to 0",
        Some(amount) if is_extended(resource) && amount % NANO != 0 => "must be an integer",
        Some(_) => return,
    };
    faults.push(Fault::invalid(field, quantity.0.as_str(), why));
}

fn check_limit(
    resource: &str,
    request: &Quantity,
    limit: Option<&Quantity>,
    field: &str,
    faults: &mut Vec<Fault>,
) {
    let Some(limit) = limit else {
        if is_extended(resource) {
            faults.push(Fault::required(
                format!("{field}.limits"),
                format_args!("Limit must be set for non overcommitable resources: {resource}"),
            ));
        }
        return;
    };
    let (Some(asked), Some(most)) = (parse(&request.0), parse(&limit.0)) else {
        return;
    };
    let how = if is_extended(resource) && asked != most {
        "equal to"
    } else if asked > most {
        "less than or equal to"
    } else {
        return;
    };
    faults.push(Fault::invalid(
        format!("{field}.requests"),
        request.0.as_str(),
        format_args!("must be {how} {resource} limit of {}", limit.0),
    ));
}

/// The amount in thousand-millionths, rounded up as Kubernetes does; nothing where it is no quantity.
fn parse(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || number.len() == number.matches('.').count() {
        return None;
    }
    let (twos, tens) = scale(suffix)?;
    let digits = whole
        .bytes()
        .chain(fraction.bytes())
        .fold(0_u128, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(u128::from(digit - b'0'))
        });
    let tens = tens
        .saturating_add(NANO_DIGITS)
        .saturating_sub(i32::try_from(fraction.len()).ok()?);
    let power = 10_u128
        .checked_pow(tens.unsigned_abs())
        .unwrap_or(u128::MAX);
    let digits = digits.saturating_mul(1 << twos);
    let amount = if tens < 0 {
        digits.div_ceil(power)
    } else {
        digits.saturating_mul(power)
    };
    let amount = i128::try_from(amount).unwrap_or(i128::MAX);
    Some(if text.starts_with('-') {
        -amount
    } else {
        amount
    })
}

/// The powers of two and of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        exponent => (0, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}
