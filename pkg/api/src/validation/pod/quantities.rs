use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::super::{
    fault::{Fault, Faults},
    names,
    path::Path,
    unit_hints,
};
use crate::{
    names::MAIN_CONTAINER,
    quantity::{NANOS_PER_UNIT, format_nanos, parse_nanos},
    resources::{GPU_RESOURCE, ReplicaResources},
};

/// Kubernetes' message for a malformed quantity.
const QUANTITY_RULE: &str =
    r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// Prefix of huge page resources; the page size follows.
const HUGE_PAGES: &str = "hugepages-";
/// Resources of pod-level requests and limits; huge pages of any size.
const POD_RESOURCES: [&str; 3] = ["cpu", HUGE_PAGES, "memory"];

/// Checks that a resource name is allowed.
type CheckName = fn(&str, &Path<'_>, &mut Faults);

/// Checks requests and limits of a container.
pub(crate) fn check_requirements(
    requirements: &ResourceRequirements,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    check_amounts(requirements, check_resource_name, field, faults);
}

/// Checks pod-level requests and limits.
pub(crate) fn check_pod_resources(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let Some(requirements) = &pod.resources else {
        return;
    };
    let place = field.child("resources");
    if requirements.claims.as_ref().is_some_and(|c| !c.is_empty()) {
        let why = "claims may not be set for Resources at pod-level";
        faults.push(Fault::forbidden(place.child("claims"), why));
    }
    check_amounts(requirements, check_pod_resource_name, &place, faults);
    if let Some(limits) = &requirements.limits {
        check_container_limits(limits, pod, field, faults);
    }
    let amounts = pod_requests(requirements);
    for (list, resource, quantity) in amounts {
        let Some(max) = parse_nanos(&quantity.0) else {
            continue;
        };
        let limits = pod.containers.iter().map(|c| container_limit(c, resource));
        // `check_container_limits` reports a container limit above the pod limit.
        let is_reported = list == "limits" && limits.flatten().any(|limit| limit > max);
        let totals = PodTotals::from_pod(pod, resource, None);
        if totals.amount > max && !is_reported {
            let why = format_args!(
                "must be greater than or equal to aggregate container requests of {totals}"
            );
            let place = place.child(list).key(resource);
            faults.push(Fault::invalid(place, quantity.0.as_str(), why));
        }
    }
}

/// Returns pod-level requests with their list. A limit counts as the request if the request is
/// unset.
fn pod_requests(
    requirements: &ResourceRequirements,
) -> impl Iterator<Item = (&'static str, &String, &Quantity)> {
    let requests = requirements.requests.iter().flatten();
    let limits = requirements.limits.iter().flatten();
    let is_requested = |resource: &String| {
        let requests = requirements.requests.as_ref();
        requests.is_some_and(|requests| requests.contains_key(resource))
    };
    let limits = limits.filter(move |(resource, _)| !is_requested(resource));
    let requests = requests.map(|(resource, quantity)| ("requests", resource, quantity));
    requests.chain(limits.map(|(resource, quantity)| ("limits", resource, quantity)))
}

/// The maximum sum of container requests at any time in the life of a pod.
struct PodTotals {
    amount: i128,
    /// Whether the sum is formatted with powers of 1024, like the first request.
    is_binary: bool,
}

impl PodTotals {
    /// `main`, if given, replaces the request of the main container.
    fn from_pod(pod: &PodSpec, resource: &str, main: Option<&Quantity>) -> Self {
        let quantity_of = |container: &Container| {
            let main = main.filter(|_| container.name == MAIN_CONTAINER);
            main.cloned()
                .or_else(|| container_request(container, resource))
        };
        let amount_of = |container: &Container| {
            let amount = quantity_of(container).and_then(|quantity| parse_nanos(&quantity.0));
            amount.unwrap_or_default().max(0)
        };
        let inits = || pod.init_containers.iter().flatten();
        let add = |sum: i128, container| sum.saturating_add(amount_of(container));
        let mut amount = pod.containers.iter().fold(0, add);
        // A sidecar keeps running next to all containers that start later.
        let (mut sidecars, mut init_max) = (0, 0);
        for init in inits() {
            if init.restart_policy.as_deref() == Some("Always") {
                sidecars = add(sidecars, init);
                amount = add(amount, init);
                init_max = sidecars.max(init_max);
            } else {
                init_max = add(sidecars, init).max(init_max);
            }
        }
        let first = pod.containers.iter().chain(inits()).find_map(quantity_of);
        Self {
            amount: amount.max(init_max),
            is_binary: first.is_some_and(|first| first.0.ends_with('i')),
        }
    }
}

impl fmt::Display for PodTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_nanos(self.amount, self.is_binary))
    }
}

/// Returns the request of a container; a limit counts as the request if the request is unset.
fn container_request(container: &Container, resource: &str) -> Option<Quantity> {
    let own = container.resources.as_ref()?;
    let mut lists = [&own.requests, &own.limits].into_iter().flatten();
    lists.find_map(|list| list.get(resource)).cloned()
}

fn container_limit(container: &Container, resource: &str) -> Option<i128> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    parse_nanos(&limits.get(resource)?.0)
}

/// Checks the pod overhead, which the API server sets from the RuntimeClass.
pub(crate) fn check_overhead(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let Some(overhead) = &pod.overhead else {
        return;
    };
    for (resource, quantity) in overhead {
        let field = field.child("overhead").key(resource);
        check_resource_name(resource, &field, faults);
        check_quantity(resource, quantity, &field, faults);
    }
    if pod.runtime_class_name.is_none() {
        let why = "Pod Overhead set without corresponding RuntimeClass defined Overhead";
        faults.push(Fault::forbidden(field.child("overhead"), why));
    }
}

/// Checks that no container limit is above the pod limit.
fn check_container_limits(
    limits: &BTreeMap<String, Quantity>,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let parsed = limits.iter().filter_map(|(resource, limit)| {
        let max = parse_nanos(&limit.0)?;
        Some((resource, (limit, max)))
    });
    let limits: BTreeMap<_, _> = parsed.collect();
    for (i, container) in pod.containers.iter().enumerate() {
        let field = field.child("containers").index(i);
        let field = field.child("resources");
        let own = container.resources.as_ref();
        let own = own.and_then(|own| own.limits.as_ref());
        for (resource, own) in own.into_iter().flatten() {
            if let Some((limit, max)) = limits.get(resource)
                && parse_nanos(&own.0).is_some_and(|own| own > *max)
            {
                let why = format_args!("must be less than or equal to pod limits of {}", limit.0);
                let field = field.child("limits").key(resource);
                faults.push(Fault::invalid(field, own.0.as_str(), why));
            }
        }
    }
}

fn check_amounts(
    requirements: &ResourceRequirements,
    check_name: CheckName,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let empty = BTreeMap::new();
    let requests = requirements.requests.as_ref().unwrap_or(&empty);
    let limits = requirements.limits.as_ref().unwrap_or(&empty);
    for (list, name) in [(limits, "limits"), (requests, "requests")] {
        for (resource, quantity) in list {
            let field = field.child(name).key(resource);
            check_name(resource, &field, faults);
            check_quantity(resource, quantity, &field, faults);
        }
    }
    let has = |resource: &str| limits.contains_key(resource) || requests.contains_key(resource);
    let is_huge = |resource: &String| resource.starts_with(HUGE_PAGES);
    if limits.keys().chain(requests.keys()).any(is_huge) && !has("cpu") && !has("memory") {
        faults.push(Fault::forbidden(field, "HugePages require cpu or memory"));
    }
    for (resource, request) in requests {
        check_limit(resource, request, limits.get(resource), field, faults);
    }
}

/// Checks the resources of a replica group, which replace those of the main container.
pub(crate) fn check_group_resources(
    resources: &ReplicaResources,
    pod: Option<&PodSpec>,
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
            if let Some(pod) = pod {
                check_main_container(pod, resource, quantity, &field.child(name), faults);
            }
        }
    }
}

/// Checks a resource of the main container in a group against the pod-level resources.
fn check_main_container(
    pod: &PodSpec,
    resource: &str,
    quantity: &Quantity,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let (Some(requirements), Some(own)) = (&pod.resources, parse_nanos(&quantity.0)) else {
        return;
    };
    let text = quantity.0.as_str();
    let limits = requirements.limits.as_ref();
    if let Some(limit) = limits.and_then(|limits| limits.get(resource))
        && parse_nanos(&limit.0).is_some_and(|max| own > max)
    {
        let why = format_args!("must be less than or equal to pod limits of {}", limit.0);
        faults.push(Fault::invalid(field, text, why));
        return;
    }
    let amount = pod_requests(requirements).find(|(_, named, _)| *named == resource);
    let Some((list, _, pod_request)) = amount else {
        return;
    };
    let totals = PodTotals::from_pod(pod, resource, Some(quantity));
    if parse_nanos(&pod_request.0).is_some_and(|max| totals.amount > max) {
        let why = format_args!(
            "makes aggregate container requests of {totals}, more than the {list} of its pod, {}",
            pod_request.0
        );
        faults.push(Fault::invalid(field, text, why));
    }
}

/// Checks that a resource is one of Kubernetes, or has a domain prefix.
fn check_resource_name(resource: &str, field: &Path<'_>, faults: &mut Faults) {
    let known = ["cpu", "memory", "ephemeral-storage"];
    if resource.contains('/') {
        names::check_qualified_name(resource, field, faults);
        // ResourceQuotas use the prefix `requests.` for requests.
        if is_extended(resource) && resource.starts_with("requests.") {
            let why = "doesn't follow extended resource name standard";
            faults.push(Fault::invalid(field, resource, why));
        }
    } else if !known.contains(&resource) && !resource.starts_with(HUGE_PAGES) {
        let why =
            format_args!("must be a standard resource type or fully qualified, as {GPU_RESOURCE}");
        faults.push(Fault::invalid(field, resource, why));
    }
}

/// Checks that a resource is allowed at pod level.
fn check_pod_resource_name(resource: &str, field: &Path<'_>, faults: &mut Faults) {
    if !POD_RESOURCES.contains(&resource) && !resource.starts_with(HUGE_PAGES) {
        faults.push(Fault::not_supported(field, resource, &POD_RESOURCES));
    }
}

/// Whether this is an extended resource, such as a GPU, which needs an integer amount.
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// Whether request and limit must be equal: extended resources and huge pages cannot be
/// overcommitted.
fn must_equal_limit(resource: &str) -> bool {
    is_extended(resource) || resource.starts_with(HUGE_PAGES)
}

/// Whether an amount of huge pages is a multiple of the page size in the name. True for other
/// resources.
fn is_page_multiple(resource: &str, amount: i128) -> bool {
    let Some(page) = resource.strip_prefix(HUGE_PAGES) else {
        return true;
    };
    is_page_size(page) && parse_nanos(page).is_some_and(|page| amount % page == 0)
}

/// Whether `text` is a valid page size: a positive number of whole bytes.
pub(crate) fn is_page_size(text: &str) -> bool {
    parse_nanos(text).is_some_and(|page| page > 0 && page % NANOS_PER_UNIT == 0)
}

/// Checks an amount of a resource.
pub(crate) fn check_quantity(
    resource: &str,
    quantity: &Quantity,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let text = quantity.0.as_str();
    let why = match parse_nanos(text) {
        None => {
            let mut why = QUANTITY_RULE.to_owned();
            let suggestions = unit_hints::suggest_quantities(text);
            if !suggestions.is_empty() {
                why = format!("{why}; did you mean {}?", suggestions.join(" or "));
            }
            faults.push(Fault::invalid(field, text, why));
            return;
        }
        Some(amount) if amount < 0 => "must be greater than or equal to 0",
        Some(amount) if is_extended(resource) && amount % NANOS_PER_UNIT != 0 => {
            "must be an integer"
        }
        Some(amount) if !is_page_multiple(resource, amount) => {
            let why = format_args!("{text} is not positive integer multiple of {resource}");
            faults.push(Fault::invalid(field, text, why));
            return;
        }
        Some(_) => return,
    };
    faults.push(Fault::invalid(field, text, why));
}

fn check_limit(
    resource: &str,
    request: &Quantity,
    limit: Option<&Quantity>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let Some(limit) = limit else {
        if must_equal_limit(resource) {
            faults.push(Fault::required(
                field.child("limits"),
                format_args!("Limit must be set for non overcommitable resources: {resource}"),
            ));
        }
        return;
    };
    let (Some(requested), Some(max)) = (parse_nanos(&request.0), parse_nanos(&limit.0)) else {
        return;
    };
    let relation = if must_equal_limit(resource) && requested != max {
        "equal to"
    } else if requested > max {
        "less than or equal to"
    } else {
        return;
    };
    faults.push(Fault::invalid(
        field.child("requests"),
        request.0.as_str(),
        format_args!("must be {relation} {resource} limit of {}", limit.0),
    ));
}
