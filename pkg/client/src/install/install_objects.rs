use di_plan::GangScheduler;
use serde_json::{Value, json};

use crate::{ObjectRef, Result, jobs::manifest};

/// Name of the container with webhooks and reconciler.
pub(super) const MANAGER: &str = "manager";

/// Environment variable of the manager with its gang scheduler.
pub(super) const GANG_VARIABLE: &str = "GANG_SCHEDULER";

/// The parts of the orchestrator to install.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstallVariant {
    /// Webhooks, reconciler, replica endpoint.
    #[default]
    Full,
    /// Admission webhooks only. Another operator runs the jobs.
    WebhookOnly,
}

/// What to install.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstallOptions {
    /// The parts of the orchestrator.
    pub variant: InstallVariant,
    /// Whether the orchestrator gets the permissions to use Kueue.
    pub kueue: bool,
    /// The scheduler of gangs. The orchestrator gets the permissions to use it.
    pub gang_scheduler: Option<GangScheduler>,
}

/// Version of the orchestrator that this library installs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The released image of this version, which the manifests name.
pub const IMAGE: &str = concat!(
    "ghcr.io/opendilab/di-orchestrator:v",
    env!("CARGO_PKG_VERSION")
);

macro_rules! manifest {
    ($file:literal) => {
        (
            concat!("manifests/", $file),
            include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../manifests/",
                $file
            )),
        )
    };
}

type File = (&'static str, &'static str);
/// Manifests of both variants. The CustomResourceDefinitions come from `di_api::crds`.
const BOTH: [File; 6] = [
    manifest!("base/namespace.yaml"),
    manifest!("base/webhooks.yaml"),
    manifest!("base/webhook-service.yaml"),
    manifest!("rbac/webhooks/service-account.yaml"),
    manifest!("rbac/webhooks/roles.yaml"),
    manifest!("rbac/users/roles.yaml"),
];
const FULL_ONLY: [File; 4] = [
    manifest!("rbac/manager/roles.yaml"),
    manifest!("default/deployment.yaml"),
    manifest!("default/server-service.yaml"),
    manifest!("default/network-policy.yaml"),
];
const WEBHOOK_ONLY: [File; 2] = [
    manifest!("webhook-only/deployment.yaml"),
    manifest!("webhook-only/network-policy.yaml"),
];
const KUEUE: [File; 1] = [manifest!("kueue/role.yaml")];
const GANG: [File; 1] = [manifest!("gang/role.yaml")];
/// The ClusterRole with the permissions to use gang schedulers, and its binding.
const GANG_ROLE: &str = "di-orchestrator-gang";

/// All objects of the orchestrator with this image, in installation order.
pub fn install_objects(options: &InstallOptions, image: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for crd in di_api::crds() {
        let crd = serde_json::to_value(crd);
        objects.push(crd.map_err(|error| crate::Error::Manifest {
            origin: "CustomResourceDefinitions".to_owned(),
            message: error.to_string(),
        })?);
    }
    let own: &[File] = match options.variant {
        InstallVariant::Full => &FULL_ONLY,
        InstallVariant::WebhookOnly => &WEBHOOK_ONLY,
    };
    let kueue: &[File] = if options.kueue { &KUEUE } else { &[] };
    let scheduler = options.gang_scheduler.as_ref();
    let has_groups = scheduler.is_some_and(|scheduler| scheduler.group_kind().is_some());
    let gang: &[File] = if has_groups { &GANG } else { &[] };
    for file in BOTH.iter().chain(own).chain(kueue).chain(gang) {
        objects.extend(parse_file(file)?);
    }
    for object in &mut objects {
        set_image(object, image);
        if let Some(scheduler) = scheduler {
            set_gang_scheduler(object, scheduler);
        }
    }
    objects.sort_by_key(install_rank);
    Ok(objects)
}

/// The objects that permit an installed orchestrator to use Kueue, in installation order.
pub fn kueue_objects() -> Result<Vec<Value>> {
    let objects: Result<Vec<_>> = KUEUE.iter().map(parse_file).collect();
    Ok(objects?.concat())
}

/// The objects that change the gang scheduler of an installed orchestrator, in installation order:
/// the permissions, if the scheduler needs any, and the Deployment with this image.
pub fn gang_objects(scheduler: Option<&GangScheduler>, image: &str) -> Result<Vec<Value>> {
    let options = InstallOptions {
        gang_scheduler: scheduler.cloned(),
        ..InstallOptions::default()
    };
    let mut objects = install_objects(&options, image)?;
    objects
        .retain(|object| object["kind"] == "Deployment" || object["metadata"]["name"] == GANG_ROLE);
    Ok(objects)
}

/// The ClusterRole with the permissions to use the groups of gang schedulers, and its binding.
pub(crate) fn gang_role() -> Result<Vec<Value>> {
    let objects: Result<Vec<_>> = GANG.iter().map(parse_file).collect();
    Ok(objects?.concat())
}

/// The permissions of the orchestrator to use the groups of gang schedulers, in deletion order.
pub fn gang_permissions() -> Result<Vec<ObjectRef>> {
    Ok(gang_role()?.iter().rev().map(ObjectRef::from).collect())
}

fn parse_file((origin, text): &File) -> Result<Vec<Value>> {
    let documents = manifest::parse(origin, text)?.documents.into_iter();
    Ok(documents.map(|document| document.object).collect())
}

/// The position in the installation order: dependencies come first.
///
/// Webhook configurations come last, because the API server calls the webhooks from then on.
fn install_rank(object: &Value) -> usize {
    const ORDER: [&str; 8] = [
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "ClusterRoleBinding",
        "RoleBinding",
        "Service",
    ];
    let kind = object["kind"].as_str().unwrap_or_default();
    let position = ORDER.iter().position(|known| *known == kind);
    position.unwrap_or(match kind {
        "NetworkPolicy" => ORDER.len(),
        "Deployment" => ORDER.len() + 1,
        _ => ORDER.len() + 2,
    })
}

fn set_image(object: &mut Value, image: &str) {
    for container in containers_of(object) {
        if container["image"] == IMAGE {
            container["image"] = image.into();
        }
    }
}

/// Adds the gang scheduler to the environment of the manager.
fn set_gang_scheduler(object: &mut Value, scheduler: &GangScheduler) {
    for container in containers_of(object) {
        if container["name"] == MANAGER
            && let Some(variables) = container["env"].as_array_mut()
        {
            variables.push(json!({"name": GANG_VARIABLE, "value": scheduler.to_string()}));
        }
    }
}

/// The containers of a Deployment; none of other objects.
fn containers_of(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let containers = object.pointer_mut("/spec/template/spec/containers");
    containers
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn identity_key(object: &Value) -> String {
        format!(
            "{} {} {}",
            object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
        )
    }

    fn with_variant(variant: InstallVariant) -> InstallOptions {
        InstallOptions {
            variant,
            ..InstallOptions::default()
        }
    }

    #[test]
    fn install_objects_match_manifests() {
        for (variant, file) in [
            (InstallVariant::Full, "install.yaml"),
            (InstallVariant::WebhookOnly, "install-webhook-only.yaml"),
        ] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests");
            let text = std::fs::read_to_string(path.join(file)).unwrap();
            let written = manifest::parse(file, &text).unwrap().documents;
            let mut written: Vec<_> = written.into_iter().map(|one| one.object).collect();
            let made = install_objects(&with_variant(variant), IMAGE).unwrap();
            // Both with the numbers of a manifest: 0 instead of 0.0.
            let made = manifest::parse("", &json!({"kind": "List", "items": made}).to_string());
            let mut made: Vec<_> = made
                .unwrap()
                .documents
                .into_iter()
                .map(|one| one.object)
                .collect();
            written.sort_by_key(identity_key);
            made.sort_by_key(identity_key);
            assert_eq!(written.len(), made.len(), "{file}");
            for (written, made) in written.iter().zip(&made) {
                assert!(written == made, "{file}: {} differs", identity_key(made));
            }
        }
    }

    #[test]
    fn manifests_have_version_of_crate() {
        for variant in [InstallVariant::Full, InstallVariant::WebhookOnly] {
            let objects = install_objects(&with_variant(variant), IMAGE).unwrap();
            let mut deployments = objects.into_iter().filter(|o| o["kind"] == "Deployment");
            let mut deployment = deployments.next().unwrap();
            let label = &deployment["metadata"]["labels"]["app.kubernetes.io/version"];
            assert_eq!(label, VERSION, "see manifests/*/deployment.yaml");
            for container in containers_of(&mut deployment) {
                assert_eq!(container["image"], IMAGE, "see manifests/*/deployment.yaml");
            }
        }
    }

    #[test]
    fn install_order_puts_dependencies_first() {
        let options = InstallOptions {
            kueue: true,
            ..InstallOptions::default()
        };
        let objects = install_objects(&options, "registry/x:1").unwrap();
        let at = |kind: &str| objects.iter().position(|o| o["kind"] == kind).unwrap();
        let order = [
            "CustomResourceDefinition",
            "Namespace",
            "ServiceAccount",
            "ClusterRole",
            "RoleBinding",
            "Service",
            "Deployment",
            "ValidatingWebhookConfiguration",
        ];
        assert!(order.map(at).is_sorted());
        let pod = &objects[at("Deployment")]["spec"]["template"]["spec"];
        for container in pod["containers"].as_array().unwrap() {
            assert_eq!(container["image"], "registry/x:1");
        }
    }

    #[test]
    fn kueue_objects_are_installed_before_the_pods() {
        let kueue = kueue_objects().unwrap();
        let found: Vec<_> = kueue.iter().map(identity_key).collect();
        let name = "null \"di-orchestrator-kueue\"";
        let expected = ["ClusterRole", "ClusterRoleBinding"];
        assert_eq!(found, expected.map(|kind| format!("\"{kind}\" {name}")));
        let options = InstallOptions {
            kueue: true,
            ..InstallOptions::default()
        };
        let objects = install_objects(&options, IMAGE).unwrap();
        let pods = objects.iter().position(|one| one["kind"] == "Deployment");
        for object in &kueue {
            let at = objects.iter().position(|one| one == object);
            assert!(at.is_some() && at < pods, "{object}");
        }
        let without = install_objects(&InstallOptions::default(), IMAGE).unwrap();
        assert_eq!(without.len() + kueue.len(), objects.len());
    }

    /// The gang scheduler in the environment of the manager of the Deployment.
    fn gang_scheduler_of(objects: &[Value]) -> Option<&str> {
        let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
        let containers = &deployment["spec"]["template"]["spec"]["containers"];
        let mut containers = containers.as_array().unwrap().iter();
        let manager = containers.find(|one| one["name"] == MANAGER).unwrap();
        let mut variables = manager["env"].as_array().unwrap().iter();
        let variable = variables.find(|one| one["name"] == GANG_VARIABLE)?;
        variable["value"].as_str()
    }

    #[test]
    fn gang_objects_are_the_permissions_and_the_pods() {
        let with_role = ["ClusterRole", "ClusterRoleBinding", "Deployment"];
        for (scheduler, kinds) in [
            (Some("volcano"), &with_role[..]),
            (Some("coscheduling:mine"), &with_role[..]),
            (Some("kubernetes"), &with_role[..]),
            // It has no groups.
            (Some("yunikorn"), &with_role[2..]),
            (None, &with_role[2..]),
        ] {
            let parsed = scheduler.map(|text| text.parse::<GangScheduler>().unwrap());
            let objects = gang_objects(parsed.as_ref(), "registry/x:1").unwrap();
            let found: Vec<_> = objects
                .iter()
                .map(|o| o["kind"].as_str().unwrap())
                .collect();
            assert_eq!(found, kinds, "{scheduler:?}");
            assert_eq!(gang_scheduler_of(&objects), scheduler);
            let options = InstallOptions {
                gang_scheduler: parsed,
                ..InstallOptions::default()
            };
            let all = install_objects(&options, "registry/x:1").unwrap();
            for object in &objects {
                assert!(all.contains(object), "{scheduler:?}: {object}");
            }
        }
        let permissions = gang_permissions().unwrap();
        let deleted: Vec<_> = permissions.iter().map(|one| &*one.api.kind).collect();
        assert_eq!(deleted, ["ClusterRoleBinding", "ClusterRole"]);
    }
}
