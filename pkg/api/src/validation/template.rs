use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, Volume};

use super::{Fault, names, ports, quantities};
use crate::names::MAIN_CONTAINER;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// The pod of a role; `shared` are the volumes that it is given beside its own.
pub(super) fn check(
    template: &PodTemplateSpec,
    field: &str,
    shared: &[Volume],
    faults: &mut Vec<Fault>,
) {
    let none = PodSpec::default();
    let pod = template.spec.as_ref().unwrap_or(&none);
    let field = format!("{field}.spec");
    let has_main = check_main(&pod.containers, &field, faults);
    check_volumes(pod.volumes.as_deref().unwrap_or_default(), &field, faults);
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    let mut seen: Vec<&str> = Vec::new();
    for (list, name) in [(inits, "initContainers"), (&pod.containers, "containers")] {
        for (i, container) in list.iter().enumerate() {
            let field = format!("{field}.{name}[{i}]");
            let name = format!("{field}.name");
            names::check_label_name(&container.name, &name, faults);
            names::check_unique(seen.iter().copied(), &container.name, &name, faults);
            seen.push(&container.name);
            // Without a main container the template is not a replica's yet, and the rest of it unfinished.
            if has_main {
                check_image(container, &field, faults);
            }
            check_env(container, &field, faults);
            ports::check(container, &field, faults);
            check_mounts(container, pod, shared, &field, faults);
            if let Some(resources) = &container.resources {
                let field = format!("{field}.resources");
                quantities::check_requirements(resources, &field, faults);
            }
        }
    }
    ports::check_own(pod, &field, faults);
    check_pod(pod, &field, faults);
}

/// Whether the main container is there.
fn check_main(containers: &[Container], field: &str, faults: &mut Vec<Fault>) -> bool {
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
        format!("{field}.containers"),
        format_args!("one container must be named {MAIN_CONTAINER}, the main one; {found}"),
    ));
    false
}

/// Names of volumes: each a DNS label, and there once.
pub(super) fn check_volumes(volumes: &[Volume], field: &str, faults: &mut Vec<Fault>) {
    for (i, volume) in volumes.iter().enumerate() {
        let field = format!("{field}.volumes[{i}].name");
        names::check_label_name(&volume.name, &field, faults);
        let earlier = volumes[..i].iter().map(|other| other.name.as_str());
        names::check_unique(earlier, &volume.name, &field, faults);
    }
}

fn check_image(container: &Container, field: &str, faults: &mut Vec<Fault>) {
    if container.image.as_deref().unwrap_or_default().is_empty() {
        let field = format!("{field}.image");
        faults.push(Fault::required(field, "the image that the container runs"));
    }
}

fn check_env(container: &Container, field: &str, faults: &mut Vec<Fault>) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let field = format!("{field}.env[{i}].name");
        if variable.name.is_empty() {
            faults.push(Fault::required(field, "it needs a name"));
        } else if variable.name.contains('=') {
            let why = "must not contain '='";
            faults.push(Fault::invalid(field, variable.name.as_str(), why));
        }
    }
}

fn check_mounts(
    container: &Container,
    pod: &PodSpec,
    shared: &[Volume],
    field: &str,
    faults: &mut Vec<Fault>,
) {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    for (i, mount) in mounts.iter().enumerate() {
        let field = format!("{field}.volumeMounts[{i}]");
        let mut volumes = pod.volumes.iter().flatten().chain(shared);
        if !volumes.any(|volume| volume.name == mount.name) {
            faults.push(Fault::not_found(
                format!("{field}.name"),
                mount.name.as_str(),
            ));
        }
        let field = format!("{field}.mountPath");
        let path = mount.mount_path.as_str();
        if path.is_empty() {
            faults.push(Fault::required(
                field,
                "where the volume appears in the container",
            ));
        } else if mounts[..i].iter().any(|other| other.mount_path == path) {
            faults.push(Fault::invalid(field, path, "must be unique"));
        }
    }
}

fn check_pod(pod: &PodSpec, field: &str, faults: &mut Vec<Fault>) {
    if pod
        .ephemeral_containers
        .as_ref()
        .is_some_and(|c| !c.is_empty())
    {
        faults.push(Fault::forbidden(
            format!("{field}.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
    if let Some(policy) = &pod.restart_policy
        && !policy.is_empty()
        && !RESTART_POLICIES.contains(&policy.as_str())
    {
        let field = format!("{field}.restartPolicy");
        faults.push(Fault::not_supported(
            field,
            policy.as_str(),
            &RESTART_POLICIES,
        ));
    }
    if let Some(seconds) = pod.termination_grace_period_seconds.filter(|s| *s < 0) {
        faults.push(Fault::invalid(
            format!("{field}.terminationGracePeriodSeconds"),
            seconds,
            "must be greater than or equal to 0",
        ));
    }
}
