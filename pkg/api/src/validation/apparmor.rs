//! AppArmor profiles, as annotations name them.

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

use super::{Fault, Faults, Path};

/// What such an annotation begins with, before the name of a container.
const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Each is of a container of the pod.
pub(super) fn check(
    template: &PodTemplateSpec,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let metadata = template.metadata.iter();
    let annotations = metadata.flat_map(|metadata| metadata.annotations.iter().flatten());
    for (key, profile) in annotations {
        let Some(name) = key.strip_prefix(PREFIX) else {
            continue;
        };
        let field = field.at("metadata");
        let field = field.value("annotations", key);
        let inits = pod.init_containers.iter().flatten();
        if !inits.chain(&pod.containers).any(|c| c.name == name) {
            faults.push(Fault::invalid(field, name, "container not found"));
        }
        let known = ["", "runtime/default", "unconfined"];
        if !known.contains(&profile.as_str()) && !profile.starts_with("localhost/") {
            let why = format_args!("invalid AppArmor profile name: {profile:?}");
            faults.push(Fault::invalid(field, profile.as_str(), why));
        }
    }
}
