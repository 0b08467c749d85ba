use std::collections::BTreeMap;

use di_api::{DIJob, Ddp, PlanEntry, Role, names};
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerPort, EnvVar, Pod, PodSpec, PodTemplateSpec, ResourceRequirements,
        Service, ServicePort, ServiceSpec,
    },
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kube::{Resource, ResourceExt};

use crate::{
    job::Job,
    ports::{master_port, port_of_entry, replica_ports},
    resource_share::ResourceShare,
};

/// Settings for pods that come from the orchestrator instead of the job.
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

/// Builds the pod of a plan entry; `None` if the role has no template.
///
/// `aggregator` is the template of aggregators, which the job does not contain.
pub fn build_pod(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: Option<&PodTemplateSpec>,
    settings: &BuildSettings,
) -> Option<Pod> {
    let template = match entry.role {
        Role::Aggregator => aggregator?,
        Role::DdpLearner => job.spec.declared(Role::Learner)?.template,
        role => job.spec.declared(role)?.template,
    };
    let mut spec = template.spec.clone().unwrap_or_default();

    add_volumes(job, &mut spec);
    // The API server turns an empty policy into `Always`, and the pod would never end.
    let policy = spec.restart_policy.get_or_insert_default();
    if policy.is_empty() {
        "Never".clone_into(policy);
    }
    let own_class = spec.priority_class_name.as_deref().unwrap_or_default();
    if own_class.is_empty() && !job.spec.priority_class_name.is_empty() {
        spec.priority_class_name = Some(job.spec.priority_class_name.clone());
        // An exported template may have these values of another class, and the API server rejects
        // pods with values that do not fit their class.
        spec.priority = None;
        spec.preemption_policy = None;
    }
    for (name, number) in replica_ports(job, entry) {
        set_port(&mut spec, &name, number);
    }
    // The entry of an aggregator has the resources of its ddp learners.
    if entry.role != Role::Aggregator
        && let Some(main) = main_container(&mut spec)
    {
        let resources = main.resources.get_or_insert_default();
        if let Some(place) = &entry.ddp {
            take_share(
                resources,
                ResourceShare::for_place(place, entry.gpu_count()),
            );
        }
        entry.resources.apply_to(resources);
    }
    let env = build_env(job, entry, settings);
    for container in spec
        .init_containers
        .iter_mut()
        .flatten()
        .chain(&mut spec.containers)
    {
        // The orchestrator's variables come first: entries of users can refer to them and override
        // them, because the last value of a name wins.
        let user_env = container.env.take().unwrap_or_default();
        container.env = Some(env.iter().cloned().chain(user_env).collect());
    }
    let mut metadata = build_metadata(job, entry, template.metadata.as_ref());
    if let Some(group) = &entry.group {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(names::GROUP_ANNOTATION.to_owned(), group.clone());
    }
    Some(Pod {
        metadata,
        spec: Some(spec),
        status: None,
    })
}

/// Builds the headless service of a plan entry. It publishes the address of the pod before the pod
/// is ready.
pub fn build_service(job: &DIJob, entry: &PlanEntry) -> Service {
    let port = |(name, number)| ServicePort {
        name: Some(name),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    };
    Service {
        metadata: build_metadata(job, entry, None),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(BTreeMap::from([
                (names::labels::JOB.to_owned(), job.name_any()),
                (names::labels::POD.to_owned(), entry.name.clone()),
            ])),
            ports: Some(replica_ports(job, entry).into_iter().map(port).collect()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn build_metadata(job: &DIJob, entry: &PlanEntry, template: Option<&ObjectMeta>) -> ObjectMeta {
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
    if let Some(place) = &entry.ddp {
        let type_ = match place.master {
            None => names::labels::DDP_LEARNER_MASTER,
            Some(_) => names::labels::DDP_LEARNER_WORKER,
        };
        labels.extend(
            [
                (names::labels::DDP_LEARNER_TYPE, type_),
                (names::labels::AGGREGATOR, &place.aggregator),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
    }
    ObjectMeta {
        name: Some(entry.name.clone()),
        namespace: job.namespace(),
        labels: Some(labels),
        annotations: template.and_then(|meta| meta.annotations.clone()),
        owner_references: job.controller_owner_ref(&()).map(|owner| {
            vec![OwnerReference {
                // A foreground deletion of the job waits for its pods and services.
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

/// Sets the number of a named port. If no container has the port, it is added to the main
/// container, where an unnamed port of this number gets the name.
fn set_port(spec: &mut PodSpec, name: &str, number: i32) {
    let mut container_ports = spec
        .containers
        .iter_mut()
        .flat_map(|c| &mut c.ports)
        .flatten();
    if let Some(port) = container_ports.find(|port| port.name.as_deref() == Some(name)) {
        // Move the host port by the same offset: with `hostNetwork` both must be equal.
        if let Some(host) = port.host_port.as_mut().filter(|host| **host != 0) {
            *host = host.saturating_add(number.saturating_sub(port.container_port));
        }
        let has_moved = port.container_port != number;
        port.container_port = number;
        // An unnamed port with the new number is a duplicate.
        if let Some(main) = main_container(spec).filter(|_| has_moved) {
            let ports = main.ports.iter_mut();
            ports.for_each(|ports| ports.retain(|port| !is_unnamed(port, number)));
        }
        return;
    }
    let Some(main) = main_container(spec) else {
        return;
    };
    let ports = main.ports.get_or_insert_default();
    if let Some(port) = ports.iter_mut().find(|port| is_unnamed(port, number)) {
        port.name = Some(name.to_owned());
    } else {
        ports.push(ContainerPort {
            name: Some(name.to_owned()),
            container_port: number,
            ..ContainerPort::default()
        });
    }
}

/// Whether this is an unnamed TCP port with this number.
fn is_unnamed(port: &ContainerPort, number: i32) -> bool {
    let is_empty_or = |text: &Option<String>, other| {
        let text = text.as_deref().unwrap_or_default();
        text.is_empty() || text == other
    };
    port.container_port == number
        && is_empty_or(&port.name, "")
        && is_empty_or(&port.protocol, "TCP")
}

/// Reduces requests and limits of the template to the share of a ddp learner.
fn take_share(requirements: &mut ResourceRequirements, share: ResourceShare) {
    let lists = [&mut requirements.requests, &mut requirements.limits];
    for (resource, quantity) in lists.into_iter().flatten().flatten() {
        *quantity = share.slice_quantity(resource, quantity);
    }
}

/// Builds the environment variables of a pod. Keep [`Role::variables`] equal: the validator uses
/// it.
fn build_env(job: &DIJob, entry: &PlanEntry, settings: &BuildSettings) -> Vec<EnvVar> {
    let namespace = job.namespace().unwrap_or_default();
    let coordinator = names::replica_url(
        &names::coordinator_name(&job.name_any()),
        &namespace,
        job.role_port(Role::Coordinator),
    );
    let mut variables = vec![
        (names::env::POD_NAMESPACE, namespace),
        (names::env::POD_NAME, entry.name.clone()),
        (names::env::SERVER_URL, settings.server_url.clone()),
        (
            names::env::SERVER_API_VERSION,
            names::SERVER_API_VERSION.to_owned(),
        ),
        (names::env::COORDINATOR_URL, coordinator),
        (entry.role.port_env(), listen_port(job, entry).to_string()),
    ];
    if entry.role != Role::Coordinator {
        variables.push((names::env::REPLICA_INDEX, entry.index.to_string()));
    }
    if let Some(place) = &entry.ddp {
        variables.extend(ddp_env(job, entry, place));
    }
    variables
        .into_iter()
        .map(|(name, value)| EnvVar {
            name: name.to_owned(),
            value: Some(value),
            value_from: None,
        })
        .collect()
}

/// The port variable of a replica. Processes of ddp learners get the port of rank 0 and add their
/// rank.
fn listen_port(job: &DIJob, entry: &PlanEntry) -> i32 {
    match entry.role {
        Role::DdpLearner => job.role_port(entry.role),
        _ => port_of_entry(job, entry),
    }
}

fn ddp_env(job: &DIJob, entry: &PlanEntry, place: &Ddp) -> [(&'static str, String); 6] {
    let plan = job.status.iter().flat_map(|status| &status.plan);
    let mut aggregators = plan.filter(|other| other.name == place.aggregator);
    let aggregator_port = aggregators
        .next()
        .map_or(Role::Aggregator.default_port(), |aggregator| {
            port_of_entry(job, aggregator)
        });
    let namespace = job.namespace().unwrap_or_default();
    let master = place.master.as_deref().unwrap_or(names::LOCAL_MASTER_ADDR);
    [
        (
            names::env::AGGREGATOR_URL,
            names::replica_url(&place.aggregator, &namespace, aggregator_port),
        ),
        (names::env::WORLD_SIZE, place.world_size.to_string()),
        (names::env::LOCAL_WORLD_SIZE, entry.gpu_count().to_string()),
        (names::env::START_RANK, place.start_rank.to_string()),
        (names::env::MASTER_ADDR, master.to_owned()),
        (names::env::MASTER_PORT, master_port(job, entry).to_string()),
    ]
}

#[cfg(test)]
mod tests;
