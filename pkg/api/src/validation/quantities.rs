//! Quantities: requests and limits of containers, and the resources of replica groups.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};

use super::{
    fault::{Fault, Faults},
    path::Path,
    unit_hints,
};
use crate::{
    quantity::{NANOS_PER_UNIT, parse_nanos},
    resources::{GPU_RESOURCE, ReplicaResources},
};

/// Kubernetes' message for a malformed quantity.
const QUANTITY_RULE: &str =
    r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// Memory in bytes with which no container starts.
const MIN_MEMORY: i128 = 1 << 20;

/// Checks that requests and limits are quantities, and no request is above its limit.
pub(super) fn check_requirements(
    requirements: &ResourceRequirements,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let (requests, limits) = (&requirements.requests, &requirements.limits);
    for (list, name) in [(limits, "limits"), (requests, "requests")] {
        for (resource, quantity) in list.iter().flatten() {
            check_quantity(resource, quantity, &field.child(name).key(resource), faults);
        }
    }
    let empty = BTreeMap::new();
    let limits = limits.as_ref().unwrap_or(&empty);
    for (resource, request) in requests.iter().flatten() {
        let Some(limit) = limits.get(resource) else {
            continue;
        };
        if let (Some(amount), Some(max)) = (parse_nanos(&request.0), parse_nanos(&limit.0))
            && amount > max
        {
            let why = format_args!(
                "must be less than or equal to {resource} limit of {}",
                limit.0
            );
            faults.push(Fault::invalid(field.child("requests"), &request.0, why));
        }
    }
}

/// Checks the resources of a replica group, which replace those of the main container.
pub(super) fn check_group_resources(
    resources: &ReplicaResources,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    for (resource, name, quantity) in [
        ("cpu", "cpus", &resources.cpus),
        (GPU_RESOURCE, "gpus", &resources.gpus),
        ("memory", "memory", &resources.memory),
    ] {
        if let Some(quantity) = quantity {
            check_quantity(resource, quantity, &field.child(name), faults);
        }
    }
}

/// Requires a quantity that is not negative, and an integer for GPUs.
pub(super) fn check_quantity(
    resource: &str,
    quantity: &Quantity,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let text = quantity.0.as_str();
    let why = match parse_nanos(text) {
        None => {
            let suggestions = unit_hints::suggest_quantities(text).join(" or ");
            let hint = if suggestions.is_empty() {
                String::new()
            } else {
                format!("; did you mean {suggestions}?")
            };
            faults.push(Fault::invalid(
                field,
                text,
                format!("{QUANTITY_RULE}{hint}"),
            ));
            return;
        }
        Some(amount) if amount < 0 => "must be greater than or equal to 0",
        Some(amount) if resource == GPU_RESOURCE && amount % NANOS_PER_UNIT != 0 => {
            "must be an integer"
        }
        Some(_) => return,
    };
    faults.push(Fault::invalid(field, text, why));
}

/// Returns a warning about an amount of memory with a unit that is rarely intended, such as `512m`,
/// half a byte.
pub(super) fn memory_warning(Quantity(text): &Quantity) -> Option<String> {
    let amount = parse_nanos(text)?;
    if amount % NANOS_PER_UNIT != 0 {
        return Some(format!(
            "fractional byte value {text:?} is invalid, must be an integer"
        ));
    }
    let is_small = amount > 0 && amount < MIN_MEMORY * NANOS_PER_UNIT;
    is_small.then(|| format!("{text} is too little for any container, is a unit missing?"))
}
