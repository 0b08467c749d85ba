use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{Fault, Faults, Path, names, units};
use crate::{
    GPU_RESOURCE, ReplicaResources,
    names::MAIN_CONTAINER,
    quantity::{NANO, nanos as parse, written},
};

/// Of an amount, in Kubernetes' own words.
const FORM: &str =
    r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const HUGE_PAGES: &str = "hugepages-";
/// What a whole pod may ask for; of huge pages any size.
const OF_PODS: [&str; 3] = ["cpu", HUGE_PAGES, "memory"];

/// Which resources may be named.
type CheckName = fn(&str, &Path<'_>, &mut Faults);

/// Requests and limits of a container.
pub(super) fn check_requirements(
    requirements: &ResourceRequirements,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    check_amounts(requirements, check_resource_name, field, faults);
}

/// Requests and limits of a pod as a whole.
pub(super) fn check_pod(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let Some(requirements) = &pod.resources else {
        return;
    };
    let place = field.at("resources");
    if requirements.claims.as_ref().is_some_and(|c| !c.is_empty()) {
        let why = "claims may not be set for Resources at pod-level";
        faults.push(Fault::forbidden(place.at("claims"), why));
    }
    check_amounts(requirements, check_name_of_pod, &place, faults);
    if let Some(limits) = &requirements.limits {
        check_within(limits, pod, field, faults);
    }
    let amounts = of_pod(requirements);
    for (list, resource, quantity) in amounts {
        let Some(most) = parse(&quantity.0) else {
            continue;
        };
        let limits = pod.containers.iter().map(|c| limit(c, resource));
        // It is told of the container then.
        let is_told = list == "limits" && limits.flatten().any(|limit| limit > most);
        let together = Together::of(pod, resource, None);
        if together.amount > most && !is_told {
            let why = format_args!(
                "must be greater than or equal to aggregate container requests of {together}"
            );
            let place = place.value(list, resource);
            faults.push(Fault::invalid(place, quantity.0.as_str(), why));
        }
    }
}

/// What a pod as a whole asks for, and in which list: its limit where it tells of no request.
fn of_pod(
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

/// What the containers of a pod ask for together, at the time when they ask for the most.
struct Together {
    amount: i128,
    /// Whether it is written with powers of 1024, as the first of them is.
    is_binary: bool,
}

impl Together {
    /// Where a group has `main` of the resource, the main container asks for that.
    fn of(pod: &PodSpec, resource: &str, main: Option<&Quantity>) -> Self {
        let text = |container: &Container| {
            let main = main.filter(|_| container.name == MAIN_CONTAINER);
            main.cloned().or_else(|| request(container, resource))
        };
        let asked = |container: &Container| {
            let amount = text(container).and_then(|quantity| parse(&quantity.0));
            amount.unwrap_or_default().max(0)
        };
        let inits = || pod.init_containers.iter().flatten();
        let sum = |sum: i128, container| sum.saturating_add(asked(container));
        let mut amount = pod.containers.iter().fold(0, sum);
        // Sidecars run beside all that start after them, and go on.
        let (mut sidecars, mut most) = (0, 0);
        for init in inits() {
            if init.restart_policy.as_deref() == Some("Always") {
                sidecars = sum(sidecars, init);
                amount = sum(amount, init);
                most = sidecars.max(most);
            } else {
                most = sum(sidecars, init).max(most);
            }
        }
        let first = pod.containers.iter().chain(inits()).find_map(text);
        Self {
            amount: amount.max(most),
            is_binary: first.is_some_and(|first| first.0.ends_with('i')),
        }
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self.amount, self.is_binary))
    }
}

/// What a container asks for: its limit where it tells of no request.
fn request(container: &Container, resource: &str) -> Option<Quantity> {
    let own = container.resources.as_ref()?;
    let mut lists = [&own.requests, &own.limits].into_iter().flatten();
    lists.find_map(|list| list.get(resource)).cloned()
}

fn limit(container: &Container, resource: &str) -> Option<i128> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    parse(&limits.get(resource)?.0)
}

/// What the pod takes besides its containers: its class tells of it, and the API server fills it in.
pub(super) fn check_overhead(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let Some(overhead) = &pod.overhead else {
        return;
    };
    for (resource, quantity) in overhead {
        let field = field.value("overhead", resource);
        check_resource_name(resource, &field, faults);
        check(resource, quantity, &field, faults);
    }
    if pod.runtime_class_name.is_none() {
        let why = "Pod Overhead set without corresponding RuntimeClass defined Overhead";
        faults.push(Fault::forbidden(field.at("overhead"), why));
    }
}

/// No container may have more than its pod.
fn check_within(
    limits: &BTreeMap<String, Quantity>,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let parsed = limits.iter().filter_map(|(resource, limit)| {
        let most = parse(&limit.0)?;
        Some((resource, (limit, most)))
    });
    let limits: BTreeMap<_, _> = parsed.collect();
    for (i, container) in pod.containers.iter().enumerate() {
        let field = field.item("containers", i);
        let field = field.at("resources");
        let own = container.resources.as_ref();
        let own = own.and_then(|own| own.limits.as_ref());
        for (resource, own) in own.into_iter().flatten() {
            if let Some((limit, most)) = limits.get(resource)
                && parse(&own.0).is_some_and(|asked| asked > *most)
            {
                let why = format_args!("must be less than or equal to pod limits of {}", limit.0);
                let field = field.value("limits", resource);
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
    let nothing = BTreeMap::new();
    let requests = requirements.requests.as_ref().unwrap_or(&nothing);
    let limits = requirements.limits.as_ref().unwrap_or(&nothing);
    for (list, name) in [(limits, "limits"), (requests, "requests")] {
        for (resource, quantity) in list {
            let field = field.value(name, resource);
            check_name(resource, &field, faults);
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

/// The resources of a group of replicas, whose main container has them instead of its own.
pub(super) fn check_group(
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
            check(resource, quantity, &field.at(name), faults);
            if let Some(pod) = pod {
                check_main(pod, resource, quantity, &field.at(name), faults);
            }
        }
    }
}

/// What the main container has in a group, beside what its pod as a whole has.
fn check_main(
    pod: &PodSpec,
    resource: &str,
    quantity: &Quantity,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let (Some(requirements), Some(own)) = (&pod.resources, parse(&quantity.0)) else {
        return;
    };
    let text = quantity.0.as_str();
    let limits = requirements.limits.as_ref();
    if let Some(limit) = limits.and_then(|limits| limits.get(resource))
        && parse(&limit.0).is_some_and(|most| own > most)
    {
        let why = format_args!("must be less than or equal to pod limits of {}", limit.0);
        faults.push(Fault::invalid(field, text, why));
        return;
    }
    let amount = of_pod(requirements).find(|(_, named, _)| *named == resource);
    let Some((list, _, of_pod)) = amount else {
        return;
    };
    let together = Together::of(pod, resource, Some(quantity));
    if parse(&of_pod.0).is_some_and(|most| together.amount > most) {
        let why = format_args!(
            "makes aggregate container requests of {together}, more than the {list} of its pod, {}",
            of_pod.0
        );
        faults.push(Fault::invalid(field, text, why));
    }
}

/// One of Kubernetes' own, or one with the name of who brings it.
fn check_resource_name(resource: &str, field: &Path<'_>, faults: &mut Faults) {
    let known = ["cpu", "memory", "ephemeral-storage"];
    if resource.contains('/') {
        names::check_qualified_name(resource, field, faults);
        // Quotas name what is requested so.
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

/// Only what all containers of a pod can share.
fn check_name_of_pod(resource: &str, field: &Path<'_>, faults: &mut Faults) {
    if !OF_PODS.contains(&resource) && !resource.starts_with(HUGE_PAGES) {
        faults.push(Fault::not_supported(field, resource, &OF_PODS));
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

/// Whether an amount of huge pages is one of whole pages, whose size the name tells; another resource has none.
fn is_of_whole_pages(resource: &str, amount: i128) -> bool {
    let Some(page) = resource.strip_prefix(HUGE_PAGES) else {
        return true;
    };
    is_size_of_pages(page) && parse(page).is_some_and(|page| amount % page == 0)
}

/// Whole bytes, and some.
pub(super) fn is_size_of_pages(text: &str) -> bool {
    parse(text).is_some_and(|page| page > 0 && page % NANO == 0)
}

/// An amount of a resource.
pub(super) fn check(resource: &str, quantity: &Quantity, field: &Path<'_>, faults: &mut Faults) {
    let text = quantity.0.as_str();
    let why = match parse(text) {
        None => {
            let mut why = FORM.to_owned();
            let meant = units::meant(text);
            if !meant.is_empty() {
                why = format!("{why}; did you mean {}?", meant.join(" or "));
            }
            faults.push(Fault::invalid(field, text, why));
            return;
        }
        Some(amount) if amount < 0 => "must be greater than or equal to 0",
        Some(amount) if is_extended(resource) && amount % NANO != 0 => "must be an integer",
        Some(amount) if !is_of_whole_pages(resource, amount) => {
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
