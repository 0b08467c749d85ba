//! Annotations of pods that the API server reads.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, SeccompProfile, Toleration};

use super::scheduling;
use crate::validation::{
    fault::{Fault, Faults},
    path::Path,
    value_checks::check_relative_path,
};

/// Prefixes of profile annotations; the container name follows.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Profile values in annotations.
const DEFAULT: &str = "runtime/default";
const LOCAL: &str = "localhost/";
const DOCKER_DEFAULT: &str = "docker/default";
const UNCONFINED: &str = "unconfined";

/// Checks each annotation, and that it matches the field that replaced it.
pub(super) fn check_annotations(
    template: &PodTemplateSpec,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let metadata = template.metadata.iter();
    let annotations = metadata.flat_map(|metadata| metadata.annotations.iter().flatten());
    for (key, value) in annotations {
        let place = field.child("metadata");
        let place = place.child("annotations").key(key);
        if let Some(name) = key.strip_prefix(APPARMOR) {
            check_apparmor(name, value, pod, &place, faults);
            check_same_apparmor(name, value, pod, &field.child("spec"), faults);
        } else if key == SECCOMP_OF_POD || key.starts_with(SECCOMP) {
            check_seccomp(value, &place, faults);
            check_same_seccomp(key, value, pod, &field.child("spec"), faults);
        } else if key == TOLERATIONS {
            check_tolerations(value, &place, faults);
        } else if key == MIRROR {
            let why = "only kubelets create mirror pods, and delete those of other clients";
            faults.push(Fault::forbidden(place, why));
        } else if key == DELETION_COST && !is_cost(value) {
            let why = "must be a 32bit integer";
            faults.push(Fault::invalid(place, value.as_str(), why));
        }
    }
}

/// Checks an AppArmor profile annotation.
fn check_apparmor(name: &str, profile: &str, pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    if !all_containers(pod).any(|(_, _, container)| container.name == name) {
        faults.push(Fault::invalid(field, name, "container not found"));
    }
    let known = ["", DEFAULT, UNCONFINED];
    if !known.contains(&profile) && !profile.starts_with(LOCAL) {
        let why = format_args!("invalid AppArmor profile name: {profile:?}");
        faults.push(Fault::invalid(field, profile, why));
    }
}

/// Type and file of a profile in a field.
type FieldProfile<'a> = (&'a str, Option<&'a str>);

/// Checks that the container's field has the same profile. The pod's field may differ: the
/// annotation is more specific.
fn check_same_apparmor(
    name: &str,
    profile: &str,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let Some((list, i, container)) = all_containers(pod).find(|(_, _, c)| c.name == name) else {
        return;
    };
    let context = container.security_context.as_ref();
    let own = context.and_then(|context| context.app_armor_profile.as_ref());
    if let Some(own) = own.filter(|_| !is_windows(pod)) {
        let profile_in_field = (&*own.type_, own.localhost_profile.as_deref());
        let field = field.child(list).index(i);
        let field = field.child("securityContext");
        let field = field.child("appArmorProfile");
        check_same("apparmor", profile, profile_in_field, &field, faults);
    }
}

/// Checks that the seccomp field has the same profile. API servers read the annotation up to 1.26.
fn check_same_seccomp(
    key: &str,
    profile: &str,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let check_field = |own: Option<&SeccompProfile>, field: &Path<'_>, faults: &mut Faults| {
        let Some(own) = own else { return };
        let profile_in_field = (&*own.type_, own.localhost_profile.as_deref());
        let field = field.child("securityContext");
        let field = field.child("seccompProfile");
        check_same("seccomp", profile, profile_in_field, &field, faults);
    };
    if key == SECCOMP_OF_POD {
        let context = pod.security_context.as_ref();
        let own = context.and_then(|context| context.seccomp_profile.as_ref());
        check_field(own, field, faults);
    }
    let name = key.strip_prefix(SECCOMP);
    for (list, i, container) in all_containers(pod).filter(|(_, _, c)| Some(&*c.name) == name) {
        let context = container.security_context.as_ref();
        let own = context.and_then(|context| context.seccomp_profile.as_ref());
        check_field(own, &field.child(list).index(i), faults);
    }
}

fn is_windows(pod: &PodSpec) -> bool {
    pod.os.as_ref().is_some_and(|os| os.name == "windows")
}

/// Checks that annotation and field have the same profile.
fn check_same(
    kind: &str,
    profile: &str,
    in_field: FieldProfile<'_>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let (type_, file) = in_field;
    let is_same_type = match type_ {
        "Localhost" => profile.starts_with(LOCAL),
        "RuntimeDefault" => [DEFAULT, DOCKER_DEFAULT].contains(&profile),
        "Unconfined" => profile == UNCONFINED,
        // `check_profile` reports an unknown type.
        _ => return,
    };
    if !is_same_type {
        let why = format_args!("{kind} type in annotation and field must match");
        faults.push(Fault::forbidden(field.child("type"), why));
    } else if let Some(local) = profile.strip_prefix(LOCAL)
        && file != Some(local)
    {
        let why = format_args!("{kind} profile in annotation and field must match");
        faults.push(Fault::forbidden(field.child("localhostProfile"), why));
    }
}

/// Returns all containers of a pod with list and index.
fn all_containers(pod: &PodSpec) -> impl Iterator<Item = (&'static str, usize, &Container)> {
    let inits = pod.init_containers.iter().flatten().enumerate();
    let others = pod.containers.iter().enumerate();
    let inits = inits.map(|(i, container)| ("initContainers", i, container));
    inits.chain(others.map(|(i, container)| ("containers", i, container)))
}

/// Checks tolerations in JSON.
fn check_tolerations(text: &str, field: &Path<'_>, faults: &mut Faults) {
    if text.is_empty() {
        return;
    }
    match serde_json::from_str::<Option<Vec<Toleration>>>(text) {
        Ok(tolerations) => {
            for toleration in tolerations.iter().flatten() {
                scheduling::check_toleration(toleration, field, faults);
            }
        }
        Err(error) => {
            let why = format_args!("must be a list of tolerations as JSON: {error}");
            faults.push(Fault::invalid(field, text, why));
        }
    }
}

fn check_seccomp(profile: &str, field: &Path<'_>, faults: &mut Faults) {
    let known = [DEFAULT, DOCKER_DEFAULT, UNCONFINED];
    if let Some(file) = profile.strip_prefix(LOCAL) {
        check_relative_path(file, field, faults);
    } else if !known.contains(&profile) {
        let why = "must be a valid seccomp profile";
        faults.push(Fault::invalid(field, profile, why));
    }
}

/// Whether the text is a number without a plus sign and leading zeroes.
fn is_cost(text: &str) -> bool {
    let starts_well =
        text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    starts_well && text.parse::<i32>().is_ok()
}
