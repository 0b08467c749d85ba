//! The containers of a pod.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{
    Fault, Path, basic::check_one_of, env, handlers, image::is_image, mounts, names, ports,
    quantities, security, template::For,
};
use crate::names::MAIN_CONTAINER;

/// Init containers and the others.
pub(super) fn check(pod: &PodSpec, whose: For<'_>, field: &Path<'_>, faults: &mut Vec<Fault>) {
    // Without a main container the template is not a replica's yet, and the rest of it unfinished.
    let is_finished = check_main(&pod.containers, field, faults);
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    let mut seen = HashSet::new();
    for (list, kind) in [(&*pod.containers, "containers"), (inits, "initContainers")] {
        for (i, container) in list.iter().enumerate() {
            let path = field.item(kind, i);
            let name = path.at("name");
            names::check_label_name(&container.name, &name, faults);
            names::check_unique(&mut seen, &container.name, &name, faults);
            if is_finished {
                check_image(container, &path, faults);
            }
            handlers::check(container, kind == "initContainers", &path, faults);
            env::check(container, &path, faults);
            ports::check(container, &path, faults);
            mounts::check(container, pod, whose.job, &path, faults);
            security::check_container(container, pod, (field, &path), faults);
            if let Some(resources) = &container.resources {
                quantities::check_requirements(resources, &path.at("resources"), faults);
            }
        }
    }
    ports::check_pod(pod, whose.role, field, faults);
}

/// Whether the main container is there.
fn check_main(containers: &[Container], field: &Path<'_>, faults: &mut Vec<Fault>) -> bool {
    if containers.iter().any(|c| c.name == MAIN_CONTAINER) {
        return true;
    }
    let found: Vec<_> = containers.iter().map(|c| c.name.as_str()).collect();
    let found = if found.is_empty() {
        "there are no containers".to_owned()
    } else {
        format!("found {}", found.join(", "))
    };
    faults.push(Fault::required(
        field.at("containers"),
        format_args!("one container must be named {MAIN_CONTAINER}, the main one; {found}"),
    ));
    false
}

fn check_image(container: &Container, field: &Path<'_>, faults: &mut Vec<Fault>) {
    let image = container.image.as_deref().unwrap_or_default();
    let place = field.at("image");
    if image.is_empty() {
        faults.push(Fault::required(place, "the image that the container runs"));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.push(Fault::invalid(place, image, why));
    } else if !is_image(image) {
        let why = "must be [registry[:port]/]name[:tag][@digest], its name in lower case";
        faults.push(Fault::invalid(place, image, why));
    }
    let pull = container.image_pull_policy.as_deref();
    let policies = ["Always", "IfNotPresent", "Never"];
    check_one_of(pull, &policies, &field.at("imagePullPolicy"), faults);
    let policy = container.termination_message_policy.as_deref();
    let policies = ["FallbackToLogsOnError", "File"];
    check_one_of(
        policy,
        &policies,
        &field.at("terminationMessagePolicy"),
        faults,
    );
}
