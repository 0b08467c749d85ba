use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};

use super::{Fault, Path, names};
use crate::{
    GPU_RESOURCE, ReplicaResources,
    quantity::{NANO, nanos as parse},
};

pub(super) const HUGE_PAGES: &str = "hugepages-";

/// Requests and limits of a container.
pub(super) fn check_requirements(
    requirements: &ResourceRequirements,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let nothing = BTreeMap::new();
    let requests = requirements.requests.as_ref().unwrap_or(&nothing);
    let limits = requirements.limits.as_ref().unwrap_or(&nothing);
    for (list, name) in [(limits, "limits"), (requests, "requests")] {
        for (resource, quantity) in list {
            let field = field.value(name, resource);
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
pub(super) fn check_group(resources: &ReplicaResources, field: &Path<'_>, faults: &mut Vec<Fault>) {
    for (resource, name, quantity) in [
        ("cpu", "cpus", &resources.cpus),
        (GPU_RESOURCE, "gpus", &resources.gpus),
        ("memory", "memory", &resources.memory),
    ] {
        if let Some(quantity) = quantity {
            check(resource, quantity, &field.at(name), faults);
        }
    }
}

/// One of Kubernetes' own, or one with the name of who brings it.
fn check_resource_name(resource: &str, field: &Path<'_>, faults: &mut Vec<Fault>) {
    let known = ["cpu", "memory", "ephemeral-storage"];
    if resource.contains('/') {
        names::check_qualified_name(resource, field, faults);
    } else if !known.contains(&resource) && !resource.starts_with(HUGE_PAGES) {
        let why =
            format_args!("must be a standard resource type or fully qualified, as {GPU_RESOURCE}");
        faults.push(Fault::invalid(field, resource, why));
    }
}

/// Extended resources, GPUs among them, come in whole numbers.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// What is asked for is what there is: neither GPUs nor huge pages are shared.
fn is_exact(resource: &str) -> bool {
    is_extended(resource) || resource.starts_with(HUGE_PAGES)
}

/// An amount of a resource.
pub(super) fn check(
    resource: &str,
    quantity: &Quantity,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
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
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let Some(limit) = limit else {
        if is_exact(resource) {
            faults.push(Fault::required(
                field.at("limits"),
                format_args!("Limit must be set for non overcommitable resources: {resource}"),
            ));
        }
        return;
    };
    let (Some(asked), Some(most)) = (parse(&request.0), parse(&limit.0)) else {
        return;
    };
    let how = if is_exact(resource) && asked != most {
        "equal to"
    } else if asked > most {
        "less than or equal to"
    } else {
        return;
    };
    faults.push(Fault::invalid(
        field.at("requests"),
        request.0.as_str(),
        format_args!("must be {how} {resource} limit of {}", limit.0),
    ));
}
