//! Where volumes appear in a container.

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};

use super::{
    Fault, Path,
    basic::{check_no_backsteps, check_one_of, check_relative_path, check_required},
};
use crate::DIJobSpec;

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];

/// Mounts and devices of a container, of its pod's own volumes or the job's: of a job that is not known they may be any.
pub(super) fn check(
    container: &Container,
    pod: &PodSpec,
    job: Option<&DIJobSpec>,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let known = |name: &str| {
        let shared = job.into_iter().flat_map(|job| &job.volumes);
        let mut volumes = pod.volumes.iter().flatten().chain(shared);
        job.is_none() || volumes.any(|volume| volume.name == name)
    };
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    for (i, mount) in mounts.iter().enumerate() {
        let field = field.item("volumeMounts", i);
        check_volume(&mount.name, known, &field, faults);
        let path = mount.mount_path.as_str();
        let place = field.at("mountPath");
        let what = "where the volume appears in the container";
        if check_required(path, &place, what, faults)
            && mounts[..i].iter().any(|other| other.mount_path == path)
        {
            faults.push(Fault::invalid(place, path, "must be unique"));
        }
        check_mount(mount, container, &field, faults);
    }
    let devices = container.volume_devices.as_deref().unwrap_or_default();
    for (i, device) in devices.iter().enumerate() {
        let field = field.item("volumeDevices", i);
        check_volume(&device.name, known, &field, faults);
        let path = device.device_path.as_str();
        let place = field.at("devicePath");
        let what = "where the device appears in the container";
        if check_required(path, &place, what, faults) {
            check_no_backsteps(path, &place, faults);
            if devices[..i].iter().any(|other| other.device_path == path) {
                faults.push(Fault::invalid(place, path, "must be unique"));
            }
        }
    }
}

fn check_volume(
    name: &str,
    known: impl Fn(&str) -> bool,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let field = field.at("name");
    if check_required(name, &field, "the name of a volume", faults) && !known(name) {
        faults.push(Fault::not_found(field, name));
    }
}

fn check_mount(
    mount: &VolumeMount,
    container: &Container,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let sub_path = mount.sub_path.as_deref().unwrap_or_default();
    let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
    check_relative_path(sub_path, &field.at("subPath"), faults);
    let place = field.at("subPathExpr");
    check_relative_path(expression, &place, faults);
    if !sub_path.is_empty() && !expression.is_empty() {
        let why = "subPathExpr and subPath are mutually exclusive";
        faults.push(Fault::invalid(place, expression, why));
    }
    let propagation = mount.mount_propagation.as_deref();
    let place = field.at("mountPropagation");
    check_one_of(propagation, &PROPAGATIONS, &place, faults);
    let context = container.security_context.as_ref();
    if propagation == Some("Bidirectional")
        && context.and_then(|context| context.privileged) != Some(true)
    {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        faults.push(Fault::forbidden(place, why));
    }
}
