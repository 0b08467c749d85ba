//! Required fields of each volume type, and their form.

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource,
    ISCSIVolumeSource, QuobyteVolumeSource, StorageOSVolumeSource, Volume,
};
use serde_json::Value;

use super::image::PULL_POLICIES;
use crate::validation::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{
        check_between, check_one_of, check_optional_one_of, check_relative_path, check_required,
    },
};

/// Bounds of partition numbers and logical unit numbers.
const NUMBERS: (i64, i64) = (0, 255);
/// Maximum length of the iSCSI interface name for a custom initiator, in characters.
const MAX_ISCSI_INTERFACE: usize = 64;
/// Required strings of each volume type: type, field, description.
const REQUIRED: [(&str, &str, &str); 31] = [
    ("awsElasticBlockStore", "volumeID", "the disk"),
    ("azureDisk", "diskName", "the disk"),
    ("azureDisk", "diskURI", "the disk"),
    ("azureFile", "secretName", "the Secret with the account"),
    ("azureFile", "shareName", "the share"),
    ("cinder", "volumeID", "the disk"),
    ("configMap", "name", "the ConfigMap"),
    ("csi", "driver", "the driver"),
    ("flexVolume", "driver", "the driver"),
    ("gcePersistentDisk", "pdName", "the disk"),
    ("gitRepo", "repository", "the repository"),
    ("glusterfs", "endpoints", "the Endpoints of the servers"),
    ("glusterfs", "path", "the volume"),
    ("hostPath", "path", "the path on the node"),
    ("image", "reference", "the image"),
    ("iscsi", "iqn", "the target"),
    ("iscsi", "targetPortal", "the server"),
    ("nfs", "path", "the exported path"),
    ("nfs", "server", "the server"),
    (
        "persistentVolumeClaim",
        "claimName",
        "the PersistentVolumeClaim",
    ),
    ("photonPersistentDisk", "pdID", "the disk"),
    ("portworxVolume", "volumeID", "the volume"),
    ("quobyte", "registry", HOSTS_AND_PORTS),
    ("quobyte", "volume", "the volume"),
    ("rbd", "image", "the image"),
    ("scaleIO", "gateway", "the server"),
    ("scaleIO", "system", "the system"),
    ("scaleIO", "volumeName", "the volume"),
    ("secret", "secretName", "the Secret"),
    ("storageos", "volumeName", "the volume"),
    ("vsphereVolume", "volumePath", "the disk"),
];
const HOSTS_AND_PORTS: &str = "must be a host:port pair or multiple pairs separated by commas";

/// Checks a volume; `written` is the same volume as JSON.
pub(super) fn check_storage(
    volume: &Volume,
    written: &Value,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    for (source, text, description) in REQUIRED {
        if let Some(object) = written.get(source) {
            let value = object[text].as_str().unwrap_or_default();
            check_required(value, &field.child(source).child(text), description, faults);
        }
    }
    let aws = volume.aws_elastic_block_store.as_ref();
    let aws = aws.map(|disk| ("awsElasticBlockStore", disk.partition));
    let gce = volume.gce_persistent_disk.as_ref();
    let gce = gce.map(|disk| ("gcePersistentDisk", disk.partition));
    for (source, partition) in aws.into_iter().chain(gce) {
        let place = field.child(source);
        check_between(partition, NUMBERS, &place.child("partition"), faults);
    }
    if let Some(repository) = &volume.git_repo {
        let folder = repository.directory.as_deref().unwrap_or_default();
        let place = field.child("gitRepo");
        check_relative_path(folder, &place.child("directory"), faults);
    }
    let ceph = volume.cephfs.as_ref().map(|v| ("cephfs", &v.monitors));
    let rbd = volume.rbd.as_ref().map(|v| ("rbd", &v.monitors));
    for (source, monitors) in ceph.into_iter().chain(rbd) {
        if monitors.is_empty() {
            let place = field.child(source);
            faults.push(Fault::required(place.child("monitors"), "the servers"));
        }
    }
    let cinder = volume.cinder.as_ref();
    let storageos = volume.storageos.as_ref();
    for (source, secret) in [
        ("cinder", cinder.and_then(|v| v.secret_ref.as_ref())),
        ("storageos", storageos.and_then(|v| v.secret_ref.as_ref())),
    ] {
        if let Some(secret) = secret {
            let place = field.child(source);
            let place = place.child("secretRef");
            check_required(&secret.name, &place.child("name"), "the Secret", faults);
        }
    }
    if let Some(image) = &volume.image {
        let place = field.child("image");
        let policy = image.pull_policy.as_deref();
        check_one_of(policy, &PULL_POLICIES, &place.child("pullPolicy"), faults);
    }
    check_type(
        volume.azure_disk.as_ref(),
        "azureDisk",
        check_azure,
        field,
        faults,
    );
    check_type(volume.fc.as_ref(), "fc", check_fc, field, faults);
    check_type(
        volume.flex_volume.as_ref(),
        "flexVolume",
        check_flex,
        field,
        faults,
    );
    check_type(
        volume.flocker.as_ref(),
        "flocker",
        check_flocker,
        field,
        faults,
    );
    check_type(volume.iscsi.as_ref(), "iscsi", check_iscsi, field, faults);
    if let Some(disk) = volume.iscsi.as_ref().filter(|d| d.initiator_name.is_some()) {
        let both = volume.name.len() + 1 + disk.target_portal.len();
        if both > MAX_ISCSI_INTERFACE {
            let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            let place = field.child("name");
            faults.push(Fault::invalid(place, volume.name.as_str(), why));
        }
    }
    check_type(
        volume.quobyte.as_ref(),
        "quobyte",
        check_quobyte,
        field,
        faults,
    );
    check_type(
        volume.storageos.as_ref(),
        "storageos",
        check_storageos,
        field,
        faults,
    );
}

/// Runs the check of one volume type if the volume has this type.
fn check_type<T>(
    source: Option<&T>,
    name: &str,
    check: fn(&T, &Path<'_>, &mut Faults),
    field: &Path<'_>,
    faults: &mut Faults,
) {
    if let Some(source) = source {
        check(source, &field.child(name), faults);
    }
}

fn check_azure(disk: &AzureDiskVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    let mode = disk.caching_mode.as_deref();
    let modes = ["None", "ReadOnly", "ReadWrite"];
    check_optional_one_of(mode, &modes, &field.child("cachingMode"), faults);
    let kinds = ["Dedicated", "Managed", "Shared"];
    // Kubernetes fills in the one that is left out.
    let kind = disk.kind.as_deref().unwrap_or("Shared");
    check_optional_one_of(Some(kind), &kinds, &field.child("kind"), faults);
    let (starts, form) = if kind == "Managed" {
        (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )
    } else {
        (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        )
    };
    let uri = disk.disk_uri.as_str();
    if !uri.is_empty() && !uri.starts_with(starts) {
        faults.push(Fault::not_supported(field.child("diskURI"), uri, &[form]));
    }
}

fn check_fc(disk: &FCVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    let place = field.child("targetWWNs");
    let targets = disk.target_wwns.as_deref().unwrap_or_default();
    let ids = disk.wwids.as_deref().unwrap_or_default();
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => {
            let message = "must specify either targetWWNs or wwids, but not both";
            faults.push(Fault::required(place, message));
        }
        (false, false) => {
            let why = "targetWWNs and wwids can not be specified simultaneously";
            faults.push(Fault::invalid(place, targets, why));
        }
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    let place = field.child("lun");
    match disk.lun {
        None => {
            let message = "lun is required if targetWWNs is specified";
            faults.push(Fault::required(place, message));
        }
        unit => check_between(unit, NUMBERS, &place, faults),
    }
}

/// Checks that users set no options in Kubernetes' namespaces.
fn check_flex(volume: &FlexVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    for key in volume.options.iter().flatten().map(|(key, _)| key) {
        let prefix = key.split('/').next().unwrap_or_default();
        let prefix = format!(".{}", prefix.to_lowercase());
        if prefix.ends_with(".kubernetes.io") || prefix.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            let place = field.child("options").key(key);
            faults.push(Fault::invalid(place, key.as_str(), why));
        }
    }
}

fn check_flocker(volume: &FlockerVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    let name = volume.dataset_name.as_deref().unwrap_or_default();
    let id = volume.dataset_uuid.as_deref().unwrap_or_default();
    match (name.is_empty(), id.is_empty()) {
        (true, true) => {
            let message = "one of datasetName and datasetUUID is required";
            faults.push(Fault::required(field, message));
        }
        (false, false) => {
            let why = "datasetName and datasetUUID can not be specified simultaneously";
            faults.push(Fault::invalid(field, "resource", why));
        }
        _ => {}
    }
    if name.contains('/') {
        let why = "must not contain '/'";
        faults.push(Fault::invalid(field.child("datasetName"), name, why));
    }
}

fn check_iscsi(disk: &ISCSIVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    let target = Some(disk.iqn.as_str()).filter(|name| !name.is_empty());
    for (name, text) in [
        ("iqn", target),
        ("initiatorName", disk.initiator_name.as_deref()),
    ] {
        let Some(text) = text else { continue };
        let starts_well = ["iqn", "eui", "naa"]
            .iter()
            .any(|start| text.starts_with(start));
        if !starts_well {
            let why = "must be valid format starting with iqn, eui, or naa";
            faults.push(Fault::invalid(field.child(name), text, why));
        } else if !is_iscsi_name(text) {
            let why = "must be valid format (e.g. iqn.2001-04.com.example:disk)";
            faults.push(Fault::invalid(field.child(name), text, why));
        }
    }
    check_between(Some(disk.lun), NUMBERS, &field.child("lun"), faults);
    let is_true = |value: Option<bool>| value == Some(true);
    let is_secret = is_true(disk.chap_auth_discovery) || is_true(disk.chap_auth_session);
    if is_secret && disk.secret_ref.is_none() {
        let message = "the Secret with the password";
        faults.push(Fault::required(field.child("secretRef"), message));
    }
}

/// Whether the API server accepts the name of a target or initiator.
/// <https://datatracker.ietf.org/doc/html/rfc3720#section-3.2.6.3>
fn is_iscsi_name(name: &str) -> bool {
    let are_alphanumeric = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric());
    let number =
        |text: &str, digits: usize| text.chars().count() == digits && are_alphanumeric(text);
    // The API server accepts any character in place of the dot after these two.
    let after = |start: &str| {
        let mut rest = name.strip_prefix(start)?.chars();
        rest.next().map(|_| rest.as_str())
    };
    if let Some(rest) = after("eui") {
        number(rest, 16)
    } else if let Some(rest) = after("naa") {
        number(rest, 32)
    } else {
        let parts = name.strip_prefix("iqn.").and_then(|rest| {
            let (owner, unique) = rest.split_once(':')?;
            let (month, domain) = owner.split_once('.')?;
            Some((month, domain, unique))
        });
        parts.is_some_and(|(month, domain, unique)| {
            let in_domain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            let in_unique = |c: char| !",;*&$|".contains(c) && !c.is_ascii_whitespace();
            is_month(month)
                && !domain.is_empty()
                && domain.chars().all(in_domain)
                && !unique.is_empty()
                && unique.chars().all(in_unique)
        })
    }
}

/// Whether the text is a month, such as 2001-04.
fn is_month(text: &str) -> bool {
    let are_digits =
        |text: &str, many| text.len() == many && text.bytes().all(|b| b.is_ascii_digit());
    let parts = text.split_once('-');
    parts.is_some_and(|(year, month)| are_digits(year, 4) && are_digits(month, 2))
}

fn check_quobyte(volume: &QuobyteVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    let registry = volume.registry.as_str();
    if !registry.is_empty() && !registry.split(',').all(is_host_and_port) {
        let place = field.child("registry");
        faults.push(Fault::invalid(place, registry, HOSTS_AND_PORTS));
    }
    let tenant = volume.tenant.as_deref().unwrap_or_default();
    if tenant.len() > 64 {
        let message = "must be a UUID and may not exceed a length of 64 characters";
        faults.push(Fault::required(field.child("tenant"), message));
    }
}

/// Whether the text is `host:port`; a host with colons needs brackets.
fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = inner.is_some() || !host.contains(':');
        is_host && !inner.unwrap_or(host).contains(['[', ']']) && !port.contains(['[', ']'])
    })
}

fn check_storageos(volume: &StorageOSVolumeSource, field: &Path<'_>, faults: &mut Faults) {
    for (name, text) in [
        ("volumeName", &volume.volume_name),
        ("volumeNamespace", &volume.volume_namespace),
    ] {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            names::check_label_name(text, &field.child(name), faults);
        }
    }
}
