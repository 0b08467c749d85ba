use di_api::{DIJob, DIJobStatus, GPU_RESOURCE, Phase, PlanEntry, QueueState, Role, quantity};
use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt, api::ListParams, core::ApiResource};
use serde_json::Value;

use crate::{
    Change, Cluster, Result,
    connection::{
        resource::Resource,
        watch::{Selection, watch_objects},
    },
};

/// A job as the API server returned it, with its decoded parts.
#[derive(Clone, Debug)]
pub struct Job {
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The status. Empty if it is missing or cannot be decoded.
    pub status: DIJobStatus,
    /// The whole object.
    pub object: Value,
}

impl From<Value> for Job {
    fn from(object: Value) -> Self {
        let part = |name: &str| object.get(name).cloned().unwrap_or_default();
        Self {
            metadata: serde_json::from_value(part("metadata")).unwrap_or_default(),
            status: serde_json::from_value(part("status")).unwrap_or_default(),
            object,
        }
    }
}

impl Job {
    /// Name of the job.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Namespace of the job.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// GPU limits of the coordinator and all planned replicas, except those that wait for quota.
    /// Zero if the job is suspended, is queued or has ended.
    pub fn gpu_count(&self) -> i32 {
        let is_queued = self.status.phase == Some(Phase::Queued);
        if self.has_ended() || self.is_suspended() || is_queued {
            return 0;
        }
        let template_gpus = |template: &Value| -> i32 {
            let containers = &template["spec"]["containers"];
            let containers = containers.as_array().into_iter().flatten();
            let limits = containers.map(|one| &one["resources"]["limits"][GPU_RESOURCE]);
            let gpus = limits.filter_map(|gpus| match gpus {
                Value::String(text) => quantity::parse_count(text),
                number => quantity::parse_count(&number.to_string()),
            });
            gpus.sum()
        };
        let spec = &self.object["spec"];
        let entry_gpus = |entry: &PlanEntry| match (entry.role, entry.gpu_count()) {
            // The plan entry of the aggregator has the GPUs of the whole learner group.
            (Role::DdpLearner, _) => 0,
            (role @ (Role::Collector | Role::Learner), 0) => {
                let part = &spec[role.label()];
                let leader = &part["unit"]["leaderTemplate"];
                let is_leader = entry.is_replica() && leader.is_object();
                template_gpus(if is_leader { leader } else { &part["template"] })
            }
            (_, gpus) => gpus,
        };
        let plan = self.status.plan.iter();
        let running =
            plan.filter(|entry| entry.is_wanted() && entry.queue != Some(QueueState::Waiting));
        template_gpus(&spec["coordinator"]["template"]) + running.map(entry_gpus).sum::<i32>()
    }
}

/// Selects jobs.
#[derive(Clone, Debug, Default)]
pub struct JobQuery {
    /// All namespaces instead of the current one.
    pub all_namespaces: bool,
    /// Label selector.
    pub selector: Option<String>,
    /// Name of a single job.
    pub name: Option<String>,
}

/// A list of jobs with its resourceVersion.
#[derive(Clone, Debug)]
pub struct JobList {
    /// Jobs in order of namespace and name.
    pub jobs: Vec<Job>,
    /// Start of a subsequent watch.
    pub resource_version: String,
}

/// A change of a job.
pub type JobEvent = Change<Job>;

pub(crate) fn api_resource() -> ApiResource {
    ApiResource::erase::<DIJob>(&())
}

/// Reads a job in the current namespace.
pub async fn get_job(cluster: &Cluster, name: &str) -> Result<Job> {
    let (api, namespace) = (api_resource(), &cluster.namespace().name);
    let resource = Resource::new(cluster, &api, Some(namespace));
    Ok(resource.get(name).await?.into())
}

/// Lists the selected jobs.
pub async fn list_jobs(cluster: &Cluster, query: &JobQuery) -> Result<JobList> {
    let listed = query.selection(cluster).list(cluster).await?;
    Ok(JobList {
        jobs: listed.items.into_iter().map(Job::from).collect(),
        resource_version: listed.resource_version,
    })
}

/// Names of the jobs in the current namespace, for shell completion. Lists metadata only, to be
/// fast.
pub async fn job_names(cluster: &Cluster) -> Result<Vec<String>> {
    /// Maximum number of completed names.
    const MAX_NAMES: u32 = 500;
    let jobs: Api<DIJob> = Api::namespaced(cluster.client.clone(), &cluster.namespace().name);
    let params = ListParams::default().limit(MAX_NAMES);
    let found = jobs.list_metadata(&params).await;
    let found = found.map_err(|error| cluster.convert_error(error))?;
    Ok(found.iter().map(ResourceExt::name_any).collect())
}

impl JobQuery {
    fn selection(&self, cluster: &Cluster) -> Selection {
        let namespace = || cluster.namespace().name.clone();
        Selection {
            api: api_resource(),
            namespace: (!self.all_namespaces).then(namespace),
            labels: self.selector.clone(),
            fields: self.field_selector(),
        }
    }

    pub(crate) fn field_selector(&self) -> Option<String> {
        let name = self.name.as_ref();
        name.map(|name| format!("metadata.name={name}"))
    }
}

/// Watches the selected jobs from `version`, at which the `known` jobs existed.
///
/// A lost connection is resumed. If the version has expired, the stream lists again and yields all
/// changed and deleted jobs. An error of the API server ends the stream.
pub fn watch_jobs(
    cluster: &Cluster,
    query: &JobQuery,
    version: &str,
    known: &[Job],
) -> BoxStream<'static, Result<JobEvent>> {
    let known = known.iter().map(|job| &job.object);
    let changes = watch_objects(cluster, query.selection(cluster), version, known);
    changes
        .map(|change| {
            Ok(match change? {
                Change::Applied(object) => Change::Applied(object.into()),
                Change::Deleted(object) => Change::Deleted(object.into()),
            })
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gpu_count_sums_coordinator_and_planned_replicas() {
        let part = |gpus: Value| json!({"template": {"spec": {"containers": [{"resources": {"limits": {GPU_RESOURCE: gpus}}}]}}});
        let entry = |name: &str, role: &str, gpus: &str| json!({"name": name, "type": role, "origin": "Declared", "index": 0, "resources": {"gpus": gpus}});
        let mut object = json!({
            "spec": {"coordinator": part(json!(1)), "learner": part(json!("2"))},
            "status": {"phase": "Running", "plan": [
                {"name": "l", "type": "Learner", "origin": "Declared", "index": 0},
                {"name": "old", "type": "Learner", "origin": "Declared", "index": 0, "state": "Replaced"},
                {"name": "c", "type": "Collector", "origin": "Declared", "index": 0},
                {"name": "w", "type": "Learner", "origin": "Requested", "index": 1, "queue": "Waiting"},
                entry("a", "Aggregator", "8"),
                entry("d", "DDPLearner", "4"),
                entry("e", "DDPLearner", "4"),
            ]},
        });
        let gpus = |object: &Value| Job::from(object.clone()).gpu_count();
        assert_eq!(gpus(&object), 1 + 2 + 8);
        object["status"]["phase"] = "Queued".into();
        assert_eq!(gpus(&object), 0);
        object["status"]["phase"] = "Running".into();
        object["spec"]["suspend"] = true.into();
        assert_eq!(gpus(&object), 0);
    }
}
