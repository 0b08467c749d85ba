//! Names of volumes, and mounts that refer to them.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};

use super::{
    fault::{Fault, Faults},
    names,
    path::Path,
    quantities,
};

/// Checks that the volumes of a job have unique DNS labels as names.
pub(super) fn check_names(volumes: &[Volume], field: &Path<'_>, faults: &mut Faults) {
    let mut earlier = HashSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let field = field.child("volumes").index(i);
        let name = field.child("name");
        names::check_label_name(&volume.name, &name, faults);
        names::check_unique(&mut earlier, &volume.name, &name, faults);
    }
}

/// Requires sizes that are quantities. The API server would report another size without its field.
pub(super) fn check_sizes(volumes: &[Volume], field: &Path<'_>, faults: &mut Faults) {
    for (i, volume) in volumes.iter().enumerate() {
        let empty_dir = volume.empty_dir.as_ref();
        if let Some(size) = empty_dir.and_then(|empty_dir| empty_dir.size_limit.as_ref()) {
            let field = field.child("volumes").index(i);
            let field = field.child("emptyDir");
            quantities::check_quantity("memory", size, &field.child("sizeLimit"), faults);
        }
    }
}

/// Returns the names of the volumes of a pod: those of its template and of its job.
pub(super) fn mountable_names<'a>(pod: &'a PodSpec, shared: &'a [Volume]) -> HashSet<&'a str> {
    let own = pod.volumes.iter().flatten();
    own.chain(shared).map(|volume| &*volume.name).collect()
}

/// Checks that the volumes of mounts and devices exist.
pub(super) fn check_mounts(
    container: &Container,
    volumes: &HashSet<&str>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.map(|mount| &mount.name).enumerate();
    let devices = container.volume_devices.iter().flatten();
    let devices = devices.map(|device| &device.name).enumerate();
    let mounts = mounts.map(|named| ("volumeMounts", named));
    for (list, (i, name)) in mounts.chain(devices.map(|named| ("volumeDevices", named))) {
        if !volumes.contains(name.as_str()) {
            let field = field.child(list).index(i);
            faults.push(Fault::not_found(field.child("name"), name));
        }
    }
}
