use std::collections::BTreeMap;

use di_api::{DIJob, PlanEntry, Role, names};
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerPort, EnvVar, Pod, PodSpec, PodTemplateSpec, Service, ServicePort,
        ServiceSpec,
    },
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kube::{Resource, ResourceExt};

use crate::view::named_port;

/// What pods are told that does not stand in their job.
#[derive(Clone, Debug)]
pub struct BuildSettings {
    /// Address of the replica endpoint, `host:port`.
    pub server_url: String,
}

impl Default for BuildSettings {
    fn default() -> Self {
        Self {
            server_url: names::DEFAULT_SERVER_URL.to_owned(),
        }
    }
}

/// Port of a job's replicas of one role: the one named `di-port` in the template, else the role's default.
pub fn port(job: &DIJob, role: Role) -> i32 {
    job.spec
        .declared(role)
        .and_then(|declared| named_port(declared.template.spec.as_ref()?))
        .unwrap_or_else(|| role.default_port())
}

/// Pod of a planned replica; nothing for a role that the job has no template for.
pub fn pod(job: &DIJob, entry: &PlanEntry, settings: &BuildSettings) -> Option<Pod> {
    let template: &PodTemplateSpec = job.spec.declared(entry.role)?.template;
    let mut spec = template.spec.clone().unwrap_or_default();
    let port = port(job, entry.role);

    add_volumes(job, &mut spec);
    spec.restart_policy
        .get_or_insert_with(|| "Never".to_owned());
    if spec.priority_class_name.is_none() && !job.spec.priority_class_name.is_empty() {
        spec.priority_class_name = Some(job.spec.priority_class_name.clone());
    }
    if let Some(main) = main_container(&mut spec) {
        add_port(main, port);
        entry
            .resources
            .apply_to(main.resources.get_or_insert_default());
    }
    let env = env(job, entry, port, settings);
    for container in spec
        .init_containers
        .iter_mut()
        .flatten()
        .chain(&mut spec.containers)
    {
        // Ours stand first, so that users' entries may refer to and override them.
        let theirs = container.env.take().unwrap_or_default();
        container.env = Some(env.iter().cloned().chain(theirs).collect());
    }
    Some(Pod {
        metadata: metadata(job, entry, template.metadata.as_ref()),
        spec: Some(spec),
        status: None,
    })
}

/// Headless service that gives a planned replica its address, ready or not.
pub fn service(job: &DIJob, entry: &PlanEntry) -> Service {
    let port = port(job, entry.role);
    Service {
        metadata: metadata(job, entry, None),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(BTreeMap::from([
                (names::labels::JOB.to_owned(), job.name_any()),
                (names::labels::POD.to_owned(), entry.name.clone()),
            ])),
            ports: Some(vec![ServicePort {
                name: Some(names::PORT_NAME.to_owned()),
                port,
                target_port: Some(IntOrString::Int(port)),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn metadata(job: &DIJob, entry: &PlanEntry, template: Option<&ObjectMeta>) -> ObjectMeta {
    let mut labels = template
        .and_then(|meta| meta.labels.clone())
        .unwrap_or_default();
    labels.extend(
        [
            (names::labels::GROUP, names::labels::GROUP_VALUE),
            (names::labels::JOB, &job.name_any()),
            (names::labels::CONTROLLER, names::labels::CONTROLLER_VALUE),
            (names::labels::ROLE, entry.role.label()),
            (names::labels::POD, &entry.name),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    ObjectMeta {
        name: Some(entry.name.clone()),
        namespace: job.namespace(),
        labels: Some(labels),
        annotations: template.and_then(|meta| meta.annotations.clone()),
        owner_references: job.controller_owner_ref(&()).map(|owner| {
            vec![OwnerReference {
                // Who deletes the job in the foreground waits for us.
                block_owner_deletion: Some(true),
                ..owner
            }]
        }),
        ..ObjectMeta::default()
    }
}

fn main_container(spec: &mut PodSpec) -> Option<&mut Container> {
    spec.containers
        .iter_mut()
        .find(|container| container.name == names::MAIN_CONTAINER)
}

fn add_volumes(job: &DIJob, spec: &mut PodSpec) {
    let volumes = spec.volumes.get_or_insert_default();
    for volume in &job.spec.volumes {
        if !volumes.iter().any(|own| own.name == volume.name) {
            volumes.push(volume.clone());
        }
    }
}

fn add_port(container: &mut Container, port: i32) {
    let ports = container.ports.get_or_insert_default();
    if !ports
        .iter()
        .any(|p| p.name.as_deref() == Some(names::PORT_NAME))
    {
        ports.push(ContainerPort {
            name: Some(names::PORT_NAME.to_owned()),
            container_port: port,
            ..ContainerPort::default()
        });
    }
}

fn env(job: &DIJob, entry: &PlanEntry, own_port: i32, settings: &BuildSettings) -> Vec<EnvVar> {
    let namespace = job.namespace().unwrap_or_default();
    let coordinator = names::url(
        &names::coordinator(&job.name_any()),
        &namespace,
        port(job, Role::Coordinator),
    );
    let mut all = vec![
        (names::env::POD_NAMESPACE, namespace),
        (names::env::POD_NAME, entry.name.clone()),
        (names::env::SERVER_URL, settings.server_url.clone()),
        (
            names::env::SERVER_API_VERSION,
            names::SERVER_API_VERSION.to_owned(),
        ),
        (names::env::COORDINATOR_URL, coordinator),
        (entry.role.port_env(), own_port.to_string()),
    ];
    if entry.role != Role::Coordinator {
        all.push((names::env::REPLICA_INDEX, entry.index.to_string()));
    }
    all.into_iter()
        .map(|(name, value)| EnvVar {
            name: name.to_owned(),
            value: Some(value),
            value_from: None,
        })
        .collect()
}
