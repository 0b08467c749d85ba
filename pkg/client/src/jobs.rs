use di_api::{DIJob, DIJobStatus, GPU_RESOURCE, PlanEntry, Role, quantity};
use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use serde_json::Value;

use crate::{
    Change, Cluster, Result,
    resource::Resource,
    watch::{Selection, watch},
};

/// A job as the server has it, and the parts of it that we read.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its status; empty where it has none, or none that we understand.
    pub status: DIJobStatus,
    /// All of it.
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
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// How many GPUs its coordinator and the replicas of its plan ask for; none once it has ended, or while it is held.
    pub fn gpus(&self) -> i32 {
        if self.has_ended() || self.is_suspended() {
            return 0;
        }
        let of_part = |part: &str| -> i32 {
            let containers = &self.object["spec"][part]["template"]["spec"]["containers"];
            let containers = containers.as_array().into_iter().flatten();
            let limits = containers.map(|one| &one["resources"]["limits"][GPU_RESOURCE]);
            let gpus = limits.filter_map(|gpus| match gpus {
                Value::String(text) => quantity::whole(text),
                number => quantity::whole(&number.to_string()),
            });
            gpus.sum()
        };
        let of = |entry: &PlanEntry| match (entry.role, entry.gpus()) {
            // Its aggregator has those of all.
            (Role::DdpLearner, _) => 0,
            (Role::Collector, 0) => of_part("collector"),
            (Role::Learner, 0) => of_part("learner"),
            (_, gpus) => gpus,
        };
        let wanted = self.status.plan.iter().filter(|entry| entry.is_wanted());
        of_part("coordinator") + wanted.map(of).sum::<i32>()
    }
}

/// Which jobs.
#[derive(Clone, Debug, Default)]
pub struct JobQuery {
    /// Those of every namespace, not only of the current one.
    pub all_namespaces: bool,
    /// Those whose labels match.
    pub selector: Option<String>,
    /// The one of this name.
    pub name: Option<String>,
    /// Those whose fields match.
    pub field_selector: Option<String>,
    /// How many the server is asked for at a time; 0 asks for all at once, none leaves it to us.
    pub chunk_size: Option<u32>,
}

/// Jobs, and the version at which they were seen.
#[derive(Clone, Debug)]
pub struct JobList {
    /// In order of namespace and name.
    pub jobs: Vec<Job>,
    /// Where a watch goes on from.
    pub resource_version: String,
}

/// A change of a job.
pub type JobEvent = Change<Job>;

pub(crate) fn api() -> ApiResource {
    ApiResource::erase::<DIJob>(&())
}

/// The job of this name in the current namespace.
pub async fn job(cluster: &Cluster, name: &str) -> Result<Job> {
    let (api, namespace) = (api(), &cluster.namespace().name);
    let resource = Resource::new(cluster, &api, Some(namespace));
    Ok(resource.get(name).await?.into())
}

/// The jobs that match.
pub async fn jobs(cluster: &Cluster, query: &JobQuery) -> Result<JobList> {
    let listed = query.selection(cluster).list(cluster).await?;
    Ok(JobList {
        jobs: listed.items.into_iter().map(Job::from).collect(),
        resource_version: listed.resource_version,
    })
}

impl JobQuery {
    fn selection(&self, cluster: &Cluster) -> Selection {
        let namespace = || cluster.namespace().name.clone();
        Selection {
            api: api(),
            namespace: (!self.all_namespaces).then(namespace),
            labels: self.selector.clone(),
            fields: self.fields(),
            page: self.chunk_size,
        }
    }

    pub(crate) fn fields(&self) -> Option<String> {
        let name = self
            .name
            .as_ref()
            .map(|name| format!("metadata.name={name}"));
        let all: Vec<_> = name
            .into_iter()
            .chain(self.field_selector.clone())
            .collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}

/// Every change of the jobs that match, since `version`, when those that are `known` were there. Connections end now and then: it goes on
/// where it was, and when that is too long ago, with every job that is not as it was and those that have gone. What the server refuses ends it.
pub fn watch_jobs(
    cluster: &Cluster,
    query: &JobQuery,
    version: &str,
    known: &[Job],
) -> BoxStream<'static, Result<JobEvent>> {
    let known = known.iter().map(|job| &job.object);
    let changes = watch(cluster, query.selection(cluster), version, known);
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
    fn gpus_are_those_of_all_that_is_wanted() {
        let part = |gpus: Value| json!({"template": {"spec": {"containers": [{"resources": {"limits": {GPU_RESOURCE: gpus}}}]}}});
        let entry = |name: &str, role: &str, gpus: &str| json!({"name": name, "type": role, "origin": "Declared", "index": 0, "resources": {"gpus": gpus}});
        let mut object = json!({
            "spec": {"coordinator": part(json!(1)), "learner": part(json!("2"))},
            "status": {"phase": "Running", "plan": [
                {"name": "l", "type": "Learner", "origin": "Declared", "index": 0},
                {"name": "old", "type": "Learner", "origin": "Declared", "index": 0, "state": "Replaced"},
                {"name": "c", "type": "Collector", "origin": "Declared", "index": 0},
                entry("a", "Aggregator", "8"),
                entry("d", "DDPLearner", "4"),
                entry("e", "DDPLearner", "4"),
            ]},
        });
        let gpus = |object: &Value| Job::from(object.clone()).gpus();
        assert_eq!(gpus(&object), 1 + 2 + 8);
        object["spec"]["suspend"] = true.into();
        assert_eq!(gpus(&object), 0);
    }
}
