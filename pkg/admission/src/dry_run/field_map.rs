//! Maps fields of a pod to the fields of the object that the pod is built from.

use di_api::{DIJob, PodTemplate};
use di_plan::NewPod;
use k8s_openapi::api::core::v1::{Container, PodSpec};

/// Where the fields of one pod come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FieldMap {
    /// Path of the template in the object.
    pub(super) template: String,
    containers: Vec<ContainerLists>,
    init_containers: Vec<ContainerLists>,
    /// Number of volumes of the template.
    volumes: usize,
    /// The volumes after them: their indices in the volumes of the job.
    job_volumes: Vec<usize>,
    has_priority_class_of_job: bool,
}

/// The lists of a container that the orchestrator extends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ContainerLists {
    /// Number of generated environment variables. They come before those of the template.
    generated_env: usize,
    /// Number of ports in the template. Added ports come after them.
    ports: usize,
}

impl FieldMap {
    /// The origin of the fields of a pod that was built from this template.
    pub(super) fn new(
        path: String,
        template: &PodTemplate,
        job: Option<&DIJob>,
        pod: &NewPod,
    ) -> Self {
        let own = template.decode().ok().and_then(|template| template.spec);
        let built = pod.decode().ok().and_then(|pod| pod.spec);
        let (Some(own), Some(built)) = (own, built) else {
            return Self {
                template: path,
                ..Self::default()
            };
        };
        let list = |spec: &PodSpec| spec.init_containers.clone().unwrap_or_default();
        let volumes = own.volumes.as_ref().map_or(0, Vec::len);
        let job_volumes = job.map(|job| &job.spec.volumes);
        let added = built.volumes.iter().flatten().skip(volumes);
        let added = added.filter_map(|volume| {
            let mut all = job_volumes?.iter();
            all.position(|other| other.name == volume.name)
        });
        let job_class = job.map_or("", |job| &job.spec.priority_class_name);
        Self {
            template: path,
            containers: extended_lists(&own.containers, &built.containers),
            init_containers: extended_lists(&list(&own), &list(&built)),
            volumes,
            job_volumes: added.collect(),
            has_priority_class_of_job: !job_class.is_empty()
                && own.priority_class_name.as_deref().is_none_or(str::is_empty),
        }
    }

    /// The field of the object that a field of the pod comes from. What the user did not write
    /// belongs to the list or the template that the orchestrator extended.
    pub(super) fn object_field(&self, pod_field: &str) -> String {
        let Self { template, .. } = self;
        if self.has_priority_class_of_job && pod_field == "spec.priorityClassName" {
            return pod_field.to_owned();
        }
        if let Some((index, rest)) = split_index(pod_field, "spec.volumes") {
            let of_job = index.checked_sub(self.volumes);
            return match of_job.map(|index| self.job_volumes.get(index)) {
                None => format!("{template}.{pod_field}"),
                Some(Some(index)) => format!("spec.volumes[{index}]{rest}"),
                Some(None) => format!("{template}.spec.volumes"),
            };
        }
        for (list, containers) in [
            ("spec.containers", &self.containers),
            ("spec.initContainers", &self.init_containers),
        ] {
            if let Some((index, rest)) = split_index(pod_field, list) {
                return match containers.get(index) {
                    Some(lists) => format!("{template}.{list}[{index}]{}", lists.user_field(rest)),
                    None => format!("{template}.{list}"),
                };
            }
        }
        let is_written = ["spec.", "metadata.labels", "metadata.annotations"]
            .iter()
            .any(|prefix| pod_field.starts_with(prefix));
        if is_written {
            format!("{template}.{pod_field}")
        } else {
            template.clone()
        }
    }
}

impl ContainerLists {
    /// The field of the container in the template, for this field in the pod.
    fn user_field(self, field: &str) -> String {
        if let Some((index, rest)) = split_index(field, ".env") {
            return match index.checked_sub(self.generated_env) {
                Some(index) => format!(".env[{index}]{rest}"),
                None => ".env".to_owned(),
            };
        }
        match split_index(field, ".ports") {
            Some((index, _)) if index >= self.ports => ".ports".to_owned(),
            _ => field.to_owned(),
        }
    }
}

fn extended_lists(own: &[Container], built: &[Container]) -> Vec<ContainerLists> {
    let env = |container: &Container| container.env.as_ref().map_or(0, Vec::len);
    let pairs = own.iter().zip(built);
    let lists = pairs.map(|(own, built)| ContainerLists {
        generated_env: env(built).saturating_sub(env(own)),
        ports: own.ports.as_ref().map_or(0, Vec::len),
    });
    lists.collect()
}

/// Splits `list[2].rest` into 2 and `.rest`.
fn split_index<'a>(field: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = field
        .strip_prefix(list)?
        .strip_prefix('[')?
        .split_once(']')?;
    Some((index.parse().ok()?, rest))
}
