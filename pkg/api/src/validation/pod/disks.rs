//! Volumes of claims and CSI drivers.

use k8s_openapi::{
    api::core::v1::{EphemeralVolumeSource, Volume},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{metadata::check_metadata, quantities};
use crate::{
    quantity::parse_nanos,
    validation::{
        fault::{Fault, Faults},
        names,
        path::Path,
        value_checks::{check_optional_one_of, check_required},
    },
};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    SINGLE_POD_MODE,
];
/// The access mode of a claim for a single pod.
pub(super) const SINGLE_POD_MODE: &str = "ReadWriteOncePod";
const DRIVER_LEN: usize = 63;

/// Checks claims and CSI volumes.
pub(super) fn check_disks(volume: &Volume, field: &Path<'_>, faults: &mut Faults) {
    if let Some(claim) = &volume.persistent_volume_claim {
        let field = field.child("persistentVolumeClaim");
        names::check_referenced_name(&claim.claim_name, None, &field.child("claimName"), faults);
    }
    if let Some(ephemeral) = &volume.ephemeral {
        check_ephemeral(ephemeral, &field.child("ephemeral"), faults);
    }
    if let Some(csi) = &volume.csi {
        let field = field.child("csi");
        let place = field.child("driver");
        if csi.driver.len() > DRIVER_LEN {
            faults.push(Fault::too_long(place, DRIVER_LEN));
        }
        let driver = csi.driver.to_lowercase();
        names::check_object_name(Some(&driver), &place, faults);
        if let Some(secret) = &csi.node_publish_secret_ref {
            let field = field.child("nodePublishSecretRef");
            let place = field.child("name");
            check_required(&secret.name, &place, "the Secret", faults);
            names::check_object_name(Some(&secret.name), &place, faults);
        }
    }
}

/// Checks the claim template of an ephemeral volume.
fn check_ephemeral(ephemeral: &EphemeralVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    let field = field.child("volumeClaimTemplate");
    let Some(template) = &ephemeral.volume_claim_template else {
        faults.push(Fault::required(field, "the claim that is created"));
        return;
    };
    if let Some(metadata) = &template.metadata {
        check_claim_metadata(metadata, &field.child("metadata"), faults);
    }
    let field = field.child("spec");
    let class = template.spec.storage_class_name.as_deref();
    names::check_object_name(class, &field.child("storageClassName"), faults);
    let mode = template.spec.volume_mode.as_deref();
    let place = field.child("volumeMode");
    check_optional_one_of(mode, &["Block", "Filesystem"], &place, faults);
    let place = field.child("accessModes");
    let modes = template.spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        let message = "at least 1 access mode is required";
        faults.push(Fault::required(place, message));
    }
    for mode in modes
        .iter()
        .filter(|mode| !ACCESS_MODES.contains(&mode.as_str()))
    {
        faults.push(Fault::not_supported(place, mode.as_str(), &ACCESS_MODES));
    }
    let is_alone = |mode: &String| mode == SINGLE_POD_MODE;
    if modes.iter().any(is_alone) && !modes.iter().all(is_alone) {
        let why = "may not use ReadWriteOncePod with other access modes";
        faults.push(Fault::forbidden(place, why));
    }
    let resources = template.spec.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let place = field.child("resources");
    for (list, name) in [(limits, "limits"), (requests, "requests")] {
        for (resource, amount) in list.into_iter().flatten() {
            quantities::check_quantity(resource, amount, &place.child(name).key(resource), faults);
        }
    }
    match requests.and_then(|requests| requests.get("storage")) {
        Some(size) => {
            let place = place.child("requests").key("storage");
            if parse_nanos(&size.0) == Some(0) {
                let why = "must be greater than zero";
                faults.push(Fault::invalid(place, size.0.as_str(), why));
            }
        }
        None => faults.push(Fault::required(
            place.child("requests").key("storage"),
            "the size of the volume",
        )),
    }
}

/// Checks that the claim template sets only labels and annotations.
fn check_claim_metadata(metadata: &ObjectMeta, field: &Path<'_>, faults: &mut Faults) {
    check_metadata(metadata, field, faults);
    for (name, is_set) in [
        ("name", metadata.name.is_some()),
        ("generateName", metadata.generate_name.is_some()),
        ("namespace", metadata.namespace.is_some()),
        ("uid", metadata.uid.is_some()),
        ("resourceVersion", metadata.resource_version.is_some()),
        ("ownerReferences", metadata.owner_references.is_some()),
        ("finalizers", metadata.finalizers.is_some()),
    ] {
        if is_set {
            faults.push(Fault::forbidden(field.child(name), "cannot be set"));
        }
    }
}
