//! Volumes that others provide: claims, drivers, servers.

use k8s_openapi::api::core::v1::{EphemeralVolumeSource, Volume};

use super::{Fault, Faults, Path, basic::check_required, names, quantities};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const DRIVER_LEN: usize = 63;

/// What they need to find what they provide.
pub(super) fn check(volume: &Volume, field: &Path<'_>, faults: &mut Faults) {
    if let Some(claim) = &volume.persistent_volume_claim {
        let field = field.at("persistentVolumeClaim");
        names::check_needed(&claim.claim_name, None, &field.at("claimName"), faults);
    }
    if let Some(ephemeral) = &volume.ephemeral {
        check_ephemeral(ephemeral, &field.at("ephemeral"), faults);
    }
    let ceph = volume.cephfs.as_ref().map(|v| ("cephfs", &v.monitors));
    let rbd = volume.rbd.as_ref().map(|v| ("rbd", &v.monitors));
    for (name, monitors) in ceph.into_iter().chain(rbd) {
        if monitors.is_empty() {
            let field = field.at(name);
            faults.push(Fault::required(field.at("monitors"), "the servers"));
        }
    }
    if let Some(csi) = &volume.csi {
        let field = field.at("csi");
        let place = field.at("driver");
        if csi.driver.len() > DRIVER_LEN {
            faults.push(Fault::too_long(place, DRIVER_LEN));
        }
        let driver = csi.driver.to_lowercase();
        names::check_object_name(Some(&driver), &place, faults);
        if let Some(secret) = &csi.node_publish_secret_ref {
            let field = field.at("nodePublishSecretRef");
            check_required(&secret.name, &field.at("name"), "the Secret", faults);
        }
    }
}

/// A claim that is made for each pod.
fn check_ephemeral(ephemeral: &EphemeralVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    let field = field.at("volumeClaimTemplate");
    let Some(template) = &ephemeral.volume_claim_template else {
        faults.push(Fault::required(field, "the claim that is made"));
        return;
    };
    let field = field.at("spec");
    let place = field.at("accessModes");
    let modes = template.spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        let what = "at least 1 access mode is required";
        faults.push(Fault::required(place, what));
    }
    for mode in modes
        .iter()
        .filter(|mode| !ACCESS_MODES.contains(&mode.as_str()))
    {
        faults.push(Fault::not_supported(place, mode.as_str(), &ACCESS_MODES));
    }
    let resources = template.spec.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let storage = requests.and_then(|requests| requests.get("storage"));
    let place = field.at("resources");
    match storage {
        Some(size) => {
            let place = place.value("requests", "storage");
            quantities::check("storage", size, &place, faults);
        }
        None => faults.push(Fault::required(
            place.value("requests", "storage"),
            "how large it is",
        )),
    }
}
