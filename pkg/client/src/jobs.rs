use di_api::{DIJob, DIJobStatus};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    core::{
        ApiResource, WatchEvent,
        params::{ListParams, WatchParams},
    },
    error::Error as KubeError,
};
use serde_json::Value;

use crate::{Cluster, Result, resource::Resource};

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
#[derive(Clone, Debug)]
pub enum JobEvent {
    /// It is there, new or changed.
    Applied(Job),
    /// It is gone; this was its last state.
    Deleted(Job),
}

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
    let api = api();
    let params = ListParams {
        label_selector: query.selector.clone(),
        field_selector: query.field_selector(),
        ..ListParams::default()
    };
    let listed = query.resource(cluster, &api).list(&params).await?;
    Ok(JobList {
        jobs: listed.items.into_iter().map(Job::from).collect(),
        resource_version: listed.resource_version,
    })
}

impl JobQuery {
    fn resource<'a>(&self, cluster: &'a Cluster, api: &'a ApiResource) -> Resource<'a> {
        let namespace = cluster.namespace().name.as_str();
        Resource::new(cluster, api, (!self.all_namespaces).then_some(namespace))
    }

    fn field_selector(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        Some(format!("metadata.name={name}"))
    }
}

type Events = BoxStream<'static, Result<WatchEvent<Value>, KubeError>>;

struct Watch {
    cluster: Cluster,
    query: JobQuery,
    version: String,
    events: Option<Events>,
    listed: std::vec::IntoIter<Job>,
}

/// Every change of the jobs that match, since `version`. Servers end watches now and then: it goes on where it was, and
/// when that is too long ago, with every job as it is. The first error ends it.
pub fn watch_jobs(
    cluster: &Cluster,
    query: &JobQuery,
    version: &str,
) -> BoxStream<'static, Result<JobEvent>> {
    let watch = Watch {
        cluster: cluster.clone(),
        query: query.clone(),
        version: version.to_owned(),
        events: None,
        listed: Vec::new().into_iter(),
    };
    stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next().await {
            Ok(event) => Some((Ok(event), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

impl Watch {
    async fn next(&mut self) -> Result<JobEvent> {
        loop {
            if let Some(job) = self.listed.next() {
                return Ok(JobEvent::Applied(job));
            }
            let Some(events) = &mut self.events else {
                match open(&self.cluster, &self.query, &self.version).await {
                    Err(crate::Error::Server(status)) if status.code == 410 => {
                        self.relist().await?;
                    }
                    Err(error) => return Err(error),
                    Ok(events) => self.events = Some(events),
                }
                continue;
            };
            match events.next().await {
                None => self.events = None,
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    return Ok(JobEvent::Applied(self.seen(object)));
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    return Ok(JobEvent::Deleted(self.seen(object)));
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    self.version = bookmark.metadata.resource_version;
                }
                Some(Ok(WatchEvent::Error(status)) | Err(KubeError::Api(status)))
                    if status.code == 410 =>
                {
                    self.relist().await?;
                }
                Some(Ok(WatchEvent::Error(status))) => return Err(crate::Error::Server(status)),
                Some(Err(error)) => return Err(self.cluster.error(error)),
            }
        }
    }

    async fn relist(&mut self) -> Result<()> {
        let list = jobs(&self.cluster, &self.query).await?;
        self.version = list.resource_version;
        self.listed = list.jobs.into_iter();
        self.events = None;
        Ok(())
    }

    fn seen(&mut self, object: Value) -> Job {
        let job = Job::from(object);
        if let Some(version) = &job.metadata.resource_version {
            self.version.clone_from(version);
        }
        job
    }
}

async fn open(cluster: &Cluster, query: &JobQuery, version: &str) -> Result<Events> {
    let api = api();
    let params = WatchParams {
        label_selector: query.selector.clone(),
        field_selector: query.field_selector(),
        ..WatchParams::default()
    };
    query.resource(cluster, &api).watch(&params, version).await
}
