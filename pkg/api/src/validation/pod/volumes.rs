//! Volumes: names and sources.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, PodSpec, Volume, VolumeProjection,
};

use super::{disks, env, quantities, storage};
use crate::validation::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{
        check_between, check_exactly_one, check_no_backsteps, check_one_of, check_relative_path,
        check_required,
    },
};

const MODES: (i64, i64) = (0, 0o777);
const HOST_PATH_TYPES: [&str; 7] = [
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const KEY_TYPES: [&str; 6] = [
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
    "RSA3072",
    "RSA4096",
];
/// Pod fields that a file can contain.
const FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Checks names and types of volumes; `pod` is `None` for the volumes of a job.
pub(crate) fn check_volumes(
    volumes: &[Volume],
    pod: Option<&PodSpec>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let mut earlier = HashSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let field = field.child("volumes").index(i);
        let name = field.child("name");
        names::check_label_name(&volume.name, &name, faults);
        names::check_unique(&mut earlier, &volume.name, &name, faults);
        check_source(volume, pod, &field, faults);
    }
}

fn check_source(volume: &Volume, pod: Option<&PodSpec>, field: &Path<'_>, faults: &mut Faults) {
    // There are some thirty types, one field for each.
    let written = serde_json::to_value(volume).unwrap_or_default();
    let types = written.as_object().into_iter().flatten();
    let types: Vec<_> = types.filter(|(name, _)| *name != "name").collect();
    let present: Vec<_> = types
        .iter()
        .map(|(name, _)| (name.as_str(), true))
        .collect();
    // A volume without a type is an emptyDir.
    if present.len() > 1 {
        check_exactly_one(&present, "volume", field, faults);
    }
    storage::check_storage(volume, &written, field, faults);
    check_local(volume, field, faults);
    check_files(volume, pod, field, faults);
    disks::check_disks(volume, field, faults);
}

/// Checks hostPath, emptyDir and NFS volumes.
fn check_local(volume: &Volume, field: &Path<'_>, faults: &mut Faults) {
    if let Some(host) = &volume.host_path {
        let field = field.child("hostPath");
        check_no_backsteps(&host.path, &field.child("path"), faults);
        check_one_of(
            host.type_.as_deref(),
            &HOST_PATH_TYPES,
            &field.child("type"),
            faults,
        );
    }
    if let Some(empty) = &volume.empty_dir {
        let field = field.child("emptyDir");
        let medium = empty.medium.as_deref().unwrap_or_default();
        let size = medium.strip_prefix("HugePages-");
        if !size.is_some_and(quantities::is_page_size) {
            let media = ["Memory", "HugePages", "HugePages-2Mi", "HugePages-1Gi"];
            check_one_of(Some(medium), &media, &field.child("medium"), faults);
        }
        if let Some(limit) = &empty.size_limit {
            quantities::check_quantity("memory", limit, &field.child("sizeLimit"), faults);
        }
    }
    if let Some(nfs) = &volume.nfs
        && !nfs.path.is_empty()
        && !nfs.path.starts_with('/')
    {
        let why = "must be an absolute path";
        faults.push(Fault::invalid(
            field.child("nfs").child("path"),
            nfs.path.as_str(),
            why,
        ));
    }
}

/// Checks the volume types that consist of files.
fn check_files(volume: &Volume, pod: Option<&PodSpec>, field: &Path<'_>, faults: &mut Faults) {
    let mode = |mode: Option<i32>, source: &str, faults: &mut Faults| {
        check_between(
            mode,
            MODES,
            &field.child(source).child("defaultMode"),
            faults,
        );
    };
    if let Some(secret) = &volume.secret {
        mode(secret.default_mode, "secret", faults);
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let place = field.child("secret");
        names::check_referenced_name(name, secret.optional, &place.child("secretName"), faults);
        check_items(secret.items.as_deref(), &field.child("secret"), faults);
    }
    if let Some(map) = &volume.config_map {
        mode(map.default_mode, "configMap", faults);
        let place = field.child("configMap");
        names::check_referenced_name(&map.name, map.optional, &place.child("name"), faults);
        check_items(map.items.as_deref(), &field.child("configMap"), faults);
    }
    if let Some(api) = &volume.downward_api {
        mode(api.default_mode, "downwardAPI", faults);
        check_downward(
            api.items.as_deref(),
            pod,
            &field.child("downwardAPI"),
            faults,
        );
    }
    if let Some(projected) = &volume.projected {
        mode(projected.default_mode, "projected", faults);
        let mut paths = HashSet::new();
        for (i, source) in projected.sources.iter().flatten().enumerate() {
            let field = field.child("projected");
            let field = field.child("sources").index(i);
            check_projection(source, pod, &field, faults);
            check_paths(source, &mut paths, &field, faults);
        }
    }
}

/// Checks that the paths of all projected sources are unique.
fn check_paths<'a>(
    source: &'a VolumeProjection,
    paths: &mut HashSet<&'a str>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let mut check = |path: &'a str, field: &Path<'_>| {
        if !path.is_empty() && !paths.insert(path) {
            let why = "conflicting duplicate paths";
            faults.push(Fault::invalid(field.child("path"), path, why));
        }
    };
    let secret = source.secret.iter().map(|s| ("secret", &s.items));
    let map = source.config_map.iter().map(|m| ("configMap", &m.items));
    for (kind, items) in secret.chain(map) {
        for (i, item) in items.iter().flatten().enumerate() {
            check(&item.path, &field.child(kind).child("items").index(i));
        }
    }
    let api = source.downward_api.iter();
    let files = api.flat_map(|api| api.items.iter().flatten());
    for (i, file) in files.enumerate() {
        check(
            &file.path,
            &field.child("downwardAPI").child("items").index(i),
        );
    }
    if let Some(token) = &source.service_account_token {
        check(&token.path, &field.child("serviceAccountToken"));
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        check(&bundle.path, &field.child("clusterTrustBundle"));
    }
}

fn check_projection(
    source: &VolumeProjection,
    pod: Option<&PodSpec>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let present = [
        ("secret", source.secret.is_some()),
        ("configMap", source.config_map.is_some()),
        ("downwardAPI", source.downward_api.is_some()),
        (
            "serviceAccountToken",
            source.service_account_token.is_some(),
        ),
        ("clusterTrustBundle", source.cluster_trust_bundle.is_some()),
        ("podCertificate", source.pod_certificate.is_some()),
    ];
    check_exactly_one(&present, "volume", field, faults);
    if let Some(secret) = &source.secret {
        let field = field.child("secret");
        let place = field.child("name");
        check_required(&secret.name, &place, "the Secret", faults);
        names::check_referenced_name(&secret.name, secret.optional, &place, faults);
        check_items(secret.items.as_deref(), &field, faults);
    }
    if let Some(map) = &source.config_map {
        let field = field.child("configMap");
        let place = field.child("name");
        check_required(&map.name, &place, "the ConfigMap", faults);
        names::check_referenced_name(&map.name, map.optional, &place, faults);
        check_items(map.items.as_deref(), &field, faults);
    }
    if let Some(api) = &source.downward_api {
        check_downward(
            api.items.as_deref(),
            pod,
            &field.child("downwardAPI"),
            faults,
        );
    }
    check_trust(source, field, faults);
    if let Some(token) = &source.service_account_token {
        let field = field.child("serviceAccountToken");
        check_path(&token.path, &field, faults);
        let why = match token.expiration_seconds {
            Some(..600) => "may not specify a duration less than 10 minutes",
            Some(seconds) if seconds > 1 << 32 => {
                "may not specify a duration larger than 2^32 seconds"
            }
            _ => return,
        };
        let place = field.child("expirationSeconds");
        faults.push(Fault::invalid(place, token.expiration_seconds, why));
    }
}

/// Checks trust bundles and pod certificates.
fn check_trust(source: &VolumeProjection, field: &Path<'_>, faults: &mut Faults) {
    if let Some(bundle) = &source.cluster_trust_bundle {
        let field = field.child("clusterTrustBundle");
        check_path(&bundle.path, &field, faults);
        for (name, text) in [("name", &bundle.name), ("signerName", &bundle.signer_name)] {
            if let Some(text) = text {
                check_required(text, &field.child(name), "the trusted certificates", faults);
            }
        }
        match (&bundle.name, &bundle.signer_name) {
            (Some(_), Some(_)) => {
                let why = "only one of name and signerName may be used";
                faults.push(Fault::forbidden(field, why));
            }
            (None, None) => {
                let message = "either name or signerName must be specified";
                faults.push(Fault::required(field, message));
            }
            (Some(_), None) if bundle.label_selector.is_some() => {
                let why = "must be unset if name is specified";
                faults.push(Fault::forbidden(field.child("labelSelector"), why));
            }
            _ => {}
        }
    }
    if let Some(own) = &source.pod_certificate {
        let field = field.child("podCertificate");
        let signer = field.child("signerName");
        check_required(
            &own.signer_name,
            &signer,
            "the signer of the certificate",
            faults,
        );
        let key = field.child("keyType");
        if check_required(&own.key_type, &key, "the type of the key", faults) {
            check_one_of(Some(&own.key_type), &KEY_TYPES, &key, faults);
        }
    }
}

fn check_items(items: Option<&[KeyToPath]>, field: &Path<'_>, faults: &mut Faults) {
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let field = field.child("items").index(i);
        check_required(
            &item.key,
            &field.child("key"),
            "the key of the file",
            faults,
        );
        check_path(&item.path, &field, faults);
        check_between(item.mode, MODES, &field.child("mode"), faults);
    }
}

fn check_downward(
    items: Option<&[DownwardAPIVolumeFile]>,
    pod: Option<&PodSpec>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let field = field.child("items").index(i);
        check_path(&item.path, &field, faults);
        check_between(item.mode, MODES, &field.child("mode"), faults);
        match (&item.field_ref, &item.resource_field_ref) {
            (Some(_), Some(_)) => {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                faults.push(Fault::invalid(field, "resource", why));
            }
            (None, None) => {
                let message = "one of fieldRef and resourceFieldRef is required";
                faults.push(Fault::required(field.child("fieldRef"), message));
            }
            (Some(selector), None) => {
                env::check_field(selector, &FIELDS, &field.child("fieldRef"), faults);
            }
            (None, Some(resource)) => {
                let field = field.child("resourceFieldRef");
                let name = resource.container_name.as_deref().unwrap_or_default();
                let place = field.child("containerName");
                check_required(name, &place, "the container that has the resource", faults);
                env::check_resource(resource, pod, &field, faults);
            }
        }
    }
}

/// Checks the path of a file within its volume.
fn check_path(path: &str, field: &Path<'_>, faults: &mut Faults) {
    let field = field.child("path");
    if check_required(path, &field, "where the file appears in the volume", faults) {
        check_relative_path(path, &field, faults);
        // Kubelets use names that begin with `..` themselves.
        if path.starts_with("..") && !path.starts_with("../") {
            faults.push(Fault::invalid(field, path, "must not start with '..'"));
        }
    }
}
