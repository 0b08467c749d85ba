use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};

use super::Fault;
use crate::{
    GPU_RESOURCE, ReplicaResources,
    quantity::{NANO, nanos as parse},
};

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
            check(
                resource,
                quantity,
                &format!("{field}.{name}[{resource}]"),
                faults,
            );
        }
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

/// Extended resources, GPUs among them, come in whole numbers and are not shared.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

fn check(resource: &str, quantity: &Quantity, field: &str, faults: &mut Vec<Fault>) {
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
