//! The mistakes in pod templates that are reported without an API server. The webhook asks the API
//! server for all others with a dry run.
//!
//! See docs/decisions/0031.

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};

use super::{
    fault::{Fault, Faults},
    image,
    path::Path,
    quantities, role_ports, volumes,
};
use crate::names::MAIN_CONTAINER;

/// Checks the pod of a template. `job_volumes` are the volumes that the job adds; `None` for
/// aggregators, because many jobs share their template.
pub(super) fn check_pod(
    pod: &PodSpec,
    job_volumes: Option<&[Volume]>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    check_main_container(&pod.containers, field, faults);
    role_ports::check_own_port_unique(pod, field, faults);
    volumes::check_sizes(pod.volumes.as_deref().unwrap_or_default(), field, faults);
    if let Some(resources) = &pod.resources {
        quantities::check_requirements(resources, &field.child("resources"), faults);
    }
    let volumes = job_volumes.map(|shared| volumes::mountable_names(pod, shared));
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    for (list, kind) in [(&*pod.containers, "containers"), (inits, "initContainers")] {
        for (i, container) in list.iter().enumerate() {
            let field = field.child(kind).index(i);
            image::check_image(container, &field, faults);
            check_env_names(container, &field, faults);
            if let Some(resources) = &container.resources {
                quantities::check_requirements(resources, &field.child("resources"), faults);
            }
            if let Some(volumes) = &volumes {
                volumes::check_mounts(container, volumes, &field, faults);
            }
        }
    }
}

fn check_main_container(containers: &[Container], field: &Path<'_>, faults: &mut Faults) {
    if containers.iter().any(|c| c.name == MAIN_CONTAINER) {
        return;
    }
    let found: Vec<_> = containers.iter().map(|c| c.name.as_str()).collect();
    let found = if found.is_empty() {
        "there are no containers".to_owned()
    } else {
        format!("found {}", found.join(", "))
    };
    faults.push(Fault::required(
        field.child("containers"),
        format_args!("one container must be named {MAIN_CONTAINER} (the main container); {found}"),
    ));
}

/// Requires names of variables. The rest of their syntax depends on the version of Kubernetes.
fn check_env_names(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let field = field.child("env").index(i);
        let field = field.child("name");
        if variable.name.is_empty() {
            faults.push(Fault::required(field, "must not be empty"));
        } else if let Some((name, _)) = variable.name.split_once('=') {
            // The message omits the value, because others may read it.
            let why = "must not contain '='; put the value into the field value";
            faults.push(Fault::invalid(field, format!("{name}=..."), why));
        }
    }
}
