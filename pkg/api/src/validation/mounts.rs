//! Where volumes appear in a container.

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};

use super::{
    Fault, Path,
    basic::{check_no_backsteps, check_one_of, check_relative_path, check_required, check_word},
    expansion,
    template::For,
};

const RECURSIONS: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];
const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];

/// Mounts and devices of a container, of its pod's own volumes or the job's: of a job that is not known they may be any.
pub(super) fn check(
    container: &Container,
    pod: &PodSpec,
    whose: For<'_>,
    field: &Path<'_>,
    faults: &mut Vec<Fault>,
) {
    let found = |name: &str| {
        let shared = whose.job.into_iter().flat_map(|job| &job.volumes);
        let mut volumes = pod.volumes.iter().flatten().chain(shared);
        volumes.find(|volume| volume.name == name)
    };
    let known = |name: &str| whose.job.is_none() || found(name).is_some();
    check_both(container, field, faults);
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let devices = container.volume_devices.as_deref().unwrap_or_default();
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
        let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
        let place = field.at("subPathExpr");
        expansion::check(expression, container, whose.role, &place, faults);
    }
    for (i, device) in devices.iter().enumerate() {
        let field = field.item("volumeDevices", i);
        check_volume(&device.name, known, &field, faults);
        check_block(found(&device.name), &field.at("name"), faults);
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

/// A device is a disk as it is, which only claims are of.
fn check_block(volume: Option<&Volume>, field: &Path<'_>, faults: &mut Vec<Fault>) {
    let Some(volume) = volume else { return };
    if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() {
        let why =
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
        faults.push(Fault::invalid(field, volume.name.as_str(), why));
    }
}

/// A volume is a folder or a device of a container, not both, and so is a path.
fn check_both(container: &Container, field: &Path<'_>, faults: &mut Vec<Fault>) {
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.map(|mount| [&mount.name, &mount.mount_path]);
    let devices = container.volume_devices.iter().flatten();
    let devices = devices.map(|device| [&device.name, &device.device_path]);
    for (i, mount) in mounts.enumerate() {
        for (j, device) in devices.clone().enumerate() {
            let (mounted, attached) = (
                field.item("volumeMounts", i),
                field.item("volumeDevices", j),
            );
            if mount[0] == device[0] {
                let name = mount[0].as_str();
                let why = "must not already exist in volumeDevices";
                faults.push(Fault::invalid(mounted.at("name"), name, why));
                let why = "must not already exist in volumeMounts";
                faults.push(Fault::invalid(attached.at("name"), name, why));
            }
            if mount[1] == device[1] {
                let path = mount[1].as_str();
                let why = "must not already exist as a path in volumeDevices";
                faults.push(Fault::invalid(mounted.at("mountPath"), path, why));
                let why = "must not already exist as a path in volumeMounts";
                faults.push(Fault::invalid(attached.at("devicePath"), path, why));
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
    check_recursive(mount, field, faults);
    let context = container.security_context.as_ref();
    if propagation == Some("Bidirectional")
        && context.and_then(|context| context.privileged) != Some(true)
    {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        faults.push(Fault::forbidden(place, why));
    }
}

/// Whether mounts below it are read-only too, which only those of a read-only one can be.
fn check_recursive(mount: &VolumeMount, field: &Path<'_>, faults: &mut Vec<Fault>) {
    let recursive = mount.recursive_read_only.as_deref();
    let place = field.at("recursiveReadOnly");
    check_word(recursive, &RECURSIONS, &place, faults);
    if recursive.is_none_or(|recursive| recursive == "Disabled") {
        return;
    }
    if mount.read_only != Some(true) {
        let why = "may only be specified when readOnly is true";
        faults.push(Fault::forbidden(place, why));
    }
    let propagation = mount.mount_propagation.as_deref();
    if propagation.is_some_and(|propagation| propagation != "None") {
        let why = "may only be specified when mountPropagation is None or not specified";
        faults.push(Fault::forbidden(place, why));
    }
}
