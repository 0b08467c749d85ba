mod pod_spec_editor;
mod unit;

use std::collections::BTreeMap;

use di_api::{DIJob, Ddp, Placement, PlanEntry, PodTemplate, Role, names, raise_memory};
use k8s_openapi::{
    api::core::v1::{
        EnvVar, Pod, PodSpec, PodStatus, ResourceRequirements, Service, ServicePort, ServiceSpec,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::pod_spec_editor::PodSpecEditor;
use self::unit::{unit_env, unit_labels, unit_topology_term};
use crate::{
    gang::GangScheduler,
    job::Job,
    ops::{find_entry, leader_of},
    ports::{master_port, port_of_entry, replica_ports},
    resource_share::ResourceShare,
};

/// Settings for pods that come from the orchestrator instead of the job.
#[derive(Clone, Debug)]
pub struct BuildSettings {
    /// Address of the replica endpoint, `host:port`.
    pub server_url: String,
    /// The scheduler that places gangs.
    pub gang: Option<GangScheduler>,
}

impl Default for BuildSettings {
    fn default() -> Self {
        Self {
            server_url: names::DEFAULT_SERVER_URL.to_owned(),
            gang: None,
        }
    }
}

/// A pod to create.
///
/// Its spec has all fields of the template, also those that this program does not know. See
/// docs/decisions/0033.
#[derive(Clone, Debug, Default, Resource, Serialize, Deserialize)]
#[resource(inherit = Pod)]
pub struct NewPod {
    /// Name, labels, annotations and owner.
    pub metadata: ObjectMeta,
    /// The spec.
    pub spec: Map<String, Value>,
    /// Only in responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PodStatus>,
}

impl NewPod {
    /// The fields that this program knows.
    ///
    /// # Errors
    /// When a field has a wrong type.
    pub fn decode(&self) -> serde_json::Result<Pod> {
        Ok(Pod {
            metadata: self.metadata.clone(),
            spec: Some(PodSpec::deserialize(&self.spec)?),
            status: self.status.clone(),
        })
    }
}

/// Builds the pod of a plan entry, without what the gang adds. `None` if the role has no template.
pub(crate) fn build_placed_pod(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: Option<&PodTemplate>,
    settings: &BuildSettings,
) -> Option<NewPod> {
    let mut pod = build_unplaced_pod(job, entry, aggregator, settings)?;
    if let Some(placement) = find_placement(job, entry) {
        let mut spec = PodSpecEditor::from_fields(pod.spec);
        spec.add_node_selector(&placement.node_selector);
        spec.add_tolerations(&placement.tolerations);
        pod.spec = spec.into_fields();
        for (own, added) in [
            (&mut pod.metadata.labels, &placement.labels),
            (&mut pod.metadata.annotations, &placement.annotations),
        ] {
            own.get_or_insert_default().extend(added.clone());
        }
    }
    if let Some(term) = unit_topology_term(job, entry) {
        let mut spec = PodSpecEditor::from_fields(pod.spec);
        spec.add_pod_affinity(term);
        pod.spec = spec.into_fields();
    }
    Some(pod)
}

/// The template of the pod of an entry. `aggregator` is that of aggregators, which the job does not
/// contain.
pub fn template_of<'a>(
    job: &'a DIJob,
    entry: &PlanEntry,
    aggregator: Option<&'a PodTemplate>,
) -> Option<&'a PodTemplate> {
    match entry.role {
        Role::Aggregator => aggregator,
        Role::DdpLearner => Some(job.spec.declared(Role::Learner)?.template),
        role if entry.unit.is_some() && entry.is_replica() => job.spec.leader_template(role),
        role => Some(job.spec.declared(role)?.template),
    }
}

/// Like [`build_placed_pod`], without what Kueue adds, and without the name of the unit, which would
/// change what Kueue compares.
pub(crate) fn build_unplaced_pod(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: Option<&PodTemplate>,
    settings: &BuildSettings,
) -> Option<NewPod> {
    let template = template_of(job, entry, aggregator)?;
    let mut spec = PodSpecEditor::new(template);
    spec.add_volumes(&job.spec.volumes);
    spec.default_restart_policy();
    if job.spec.failure_tails {
        spec.default_termination_message_policy();
    }
    spec.default_priority_class(&job.spec.priority_class_name);
    for (name, number) in replica_ports(job, entry) {
        spec.set_port(&name, number);
    }
    // The entry of an aggregator has the resources of its ddp learners.
    if entry.role != Role::Aggregator {
        spec.edit_main_resources(|resources| {
            if let Some(place) = &entry.ddp {
                let share = ResourceShare::for_place(place, entry.gpu_count());
                take_share(resources, share);
            }
            entry.resources.apply_to(resources);
            if let Some(memory) = grown_memory(job, entry) {
                raise_memory(resources, memory);
            }
        });
    }
    spec.prepend_env(&build_env(job, entry, settings));
    let mut metadata = build_metadata(job, entry, template.part("metadata"));
    if let Some(group) = &entry.group {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(names::GROUP_ANNOTATION.to_owned(), group.clone());
    }
    Some(NewPod {
        metadata,
        spec: spec.into_fields(),
        status: None,
    })
}

/// What Kueue adds to the pod of an entry. The coordinator has no entry, and the first placement.
fn find_placement<'a>(job: &'a DIJob, entry: &PlanEntry) -> Option<&'a Placement> {
    let placements = &job.status.as_ref()?.queueing.as_ref()?.placements;
    let position = match entry.role {
        Role::Coordinator => 0,
        _ => usize::try_from(entry.placement?).ok()?,
    };
    placements.get(position)
}

/// The memory that a failure rule has given to an entry, or to its learner group or unit.
/// `None` in a queue: the quota of an admitted pod is fixed.
fn grown_memory<'a>(job: &'a DIJob, entry: &'a PlanEntry) -> Option<&'a Quantity> {
    if job.queue_name().is_some() {
        return None;
    }
    let leader = || find_entry(job.plan_entries(), leader_of(entry)?);
    entry.memory.as_ref().or_else(|| leader()?.memory.as_ref())
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
        metadata: build_metadata(job, entry, &Value::Null),
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

/// Builds the metadata, with the labels and annotations of the template's.
fn build_metadata(job: &DIJob, entry: &PlanEntry, template: &Value) -> ObjectMeta {
    let strings_of = |name: &str| {
        // The schema allows null for a string.
        let texts: BTreeMap<String, Option<String>> =
            BTreeMap::deserialize(&template[name]).ok()?;
        let texts = texts.into_iter();
        Some(
            texts
                .map(|(key, text)| (key, text.unwrap_or_default()))
                .collect(),
        )
    };
    let mut labels: BTreeMap<String, String> = strings_of("labels").unwrap_or_default();
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
    labels.extend(unit_labels(entry));
    ObjectMeta {
        name: Some(entry.name.clone()),
        namespace: job.namespace(),
        labels: Some(labels),
        annotations: strings_of("annotations"),
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

/// Reduces requests and limits of the template to the share of a ddp learner.
fn take_share(requirements: &mut ResourceRequirements, share: ResourceShare) {
    let lists = [&mut requirements.requests, &mut requirements.limits];
    for (resource, quantity) in lists.into_iter().flatten().flatten() {
        *quantity = share.slice_quantity(resource, quantity);
    }
}

/// Builds the environment variables of a pod. Keep [`Role::env_names`] and [`names::env::UNIT`]
/// equal: the validator uses them.
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
    if let Some(place) = &entry.unit {
        variables.extend(unit_env(job, entry, place));
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
