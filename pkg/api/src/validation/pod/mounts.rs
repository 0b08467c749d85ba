//! Volume mounts and devices of a container.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};

use super::{expansion::Variables, template_context::TemplateContext};
use crate::{
    role::Role,
    validation::{
        fault::{Fault, Faults},
        path::Path,
        value_checks::{
            check_no_backsteps, check_optional_one_of, check_relative_path, check_required,
        },
    },
};

const RECURSIVE_READ_ONLY_MODES: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];
const PROPAGATION_MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];

/// The volumes of a pod by name, those of the template and of the job.
pub(super) struct Volumes<'a> {
    by_name: HashMap<&'a str, &'a Volume>,
    /// False if the job, which may add volumes, is unknown.
    is_complete: bool,
}

impl<'a> Volumes<'a> {
    pub(super) fn from_pod(pod: &'a PodSpec, context: TemplateContext<'a>) -> Self {
        let shared = context.job.into_iter().flat_map(|job| &job.volumes);
        let mut by_name = HashMap::new();
        for volume in pod.volumes.iter().flatten().chain(shared) {
            by_name.entry(volume.name.as_str()).or_insert(volume);
        }
        Self {
            by_name,
            is_complete: context.job.is_some(),
        }
    }

    fn check_name(&self, name: &str, field: &Path<'_>, faults: &mut Faults) {
        let field = field.child("name");
        if check_required(name, &field, "the name of a volume", faults)
            && self.is_complete
            && !self.by_name.contains_key(name)
        {
            faults.push(Fault::not_found(field, name));
        }
    }
}

/// Checks mounts and devices of a container.
pub(super) fn check_mounts(
    container: &Container,
    volumes: &Volumes<'_>,
    role: Role,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    check_mount_device_conflicts(container, field, faults);
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let devices = container.volume_devices.as_deref().unwrap_or_default();
    let variables = Variables::from_container(container, role);
    let mut earlier = HashSet::new();
    for (i, mount) in mounts.iter().enumerate() {
        let field = field.child("volumeMounts").index(i);
        volumes.check_name(&mount.name, &field, faults);
        let path = mount.mount_path.as_str();
        let place = field.child("mountPath");
        let description = "where the volume appears in the container";
        if check_required(path, &place, description, faults) && !earlier.insert(path) {
            faults.push(Fault::invalid(place, path, "must be unique"));
        }
        check_mount(mount, container, &field, faults);
        let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
        variables.check_references(expression, &field.child("subPathExpr"), faults);
    }
    let (mut earlier, mut named) = (HashSet::new(), HashSet::new());
    for (i, device) in devices.iter().enumerate() {
        let field = field.child("volumeDevices").index(i);
        volumes.check_name(&device.name, &field, faults);
        if !named.insert(device.name.as_str()) {
            let name = device.name.as_str();
            faults.push(Fault::invalid(field.child("name"), name, "must be unique"));
        }
        let volume = volumes.by_name.get(device.name.as_str()).copied();
        check_block_source(volume, &field.child("name"), faults);
        let path = device.device_path.as_str();
        let place = field.child("devicePath");
        let description = "where the device appears in the container";
        if check_required(path, &place, description, faults) {
            check_no_backsteps(path, &place, faults);
            if !earlier.insert(path) {
                faults.push(Fault::invalid(place, path, "must be unique"));
            }
        }
    }
}

/// Checks that a device is a volume that can be a block device: a claim.
fn check_block_source(volume: Option<&Volume>, field: &Path<'_>, faults: &mut Faults) {
    let Some(volume) = volume else { return };
    if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() {
        let why =
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
        faults.push(Fault::invalid(field, volume.name.as_str(), why));
    }
}

/// Checks that no volume and no path is both mounted and attached as a device.
fn check_mount_device_conflicts(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let devices = container.volume_devices.as_deref().unwrap_or_default();
    let mounted: Vec<_> = mounts.iter().map(|m| (&*m.name, &*m.mount_path)).collect();
    let attached = devices.iter().map(|d| (&*d.name, &*d.device_path));
    let attached: Vec<_> = attached.collect();
    check_disjoint(&mounted, &attached, "volumeMounts", field, faults);
    check_disjoint(&attached, &mounted, "volumeDevices", field, faults);
}

/// Reports names and paths of one list that also occur in the other, once for each item.
fn check_disjoint(
    own: &[(&str, &str)],
    others: &[(&str, &str)],
    list: &str,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let (path, other) = if list == "volumeMounts" {
        ("mountPath", "volumeDevices")
    } else {
        ("devicePath", "volumeMounts")
    };
    let (names, paths): (HashSet<_>, HashSet<_>) = others.iter().copied().unzip();
    for (i, (volume, place)) in own.iter().enumerate() {
        let field = field.child(list).index(i);
        if names.contains(volume) {
            let why = format_args!("must not already exist in {other}");
            faults.push(Fault::invalid(field.child("name"), volume, why));
        }
        if paths.contains(place) {
            let why = format_args!("must not already exist as a path in {other}");
            faults.push(Fault::invalid(field.child(path), place, why));
        }
    }
}

fn check_mount(mount: &VolumeMount, container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let sub_path = mount.sub_path.as_deref().unwrap_or_default();
    let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
    check_relative_path(sub_path, &field.child("subPath"), faults);
    let place = field.child("subPathExpr");
    check_relative_path(expression, &place, faults);
    if !sub_path.is_empty() && !expression.is_empty() {
        let why = "subPathExpr and subPath are mutually exclusive";
        faults.push(Fault::invalid(place, expression, why));
    }
    let propagation = mount.mount_propagation.as_deref();
    let place = field.child("mountPropagation");
    check_optional_one_of(propagation, &PROPAGATION_MODES, &place, faults);
    check_recursive_read_only(mount, field, faults);
    let context = container.security_context.as_ref();
    if propagation == Some("Bidirectional")
        && context.and_then(|context| context.privileged) != Some(true)
    {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        faults.push(Fault::forbidden(place, why));
    }
}

/// Checks `recursiveReadOnly`, which is allowed only for read-only mounts.
fn check_recursive_read_only(mount: &VolumeMount, field: &Path<'_>, faults: &mut Faults) {
    let recursive = mount.recursive_read_only.as_deref();
    let place = field.child("recursiveReadOnly");
    check_optional_one_of(recursive, &RECURSIVE_READ_ONLY_MODES, &place, faults);
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
