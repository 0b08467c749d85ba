use std::collections::BTreeMap;

use di_api::names;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        watcher::{self, Error as WatchError, watcher},
    },
};
use serde_json::Value;

use crate::{
    Cluster, Error, Job, JobQuery, Replica, Result,
    jobs::job::api_resource,
    logs::follow::forbidden_status,
    replicas::list::{ObservedPod, join_plan_with_observed},
};

/// Jobs and their pods, kept up to date by watches. Dropping it ends the watches.
pub struct LiveView {
    jobs: WatchedKind<DynamicObject, Job>,
    pods: WatchedKind<Pod, ObservedPod>,
    /// Error of an interrupted watch. The objects may be out of date until it is resumed.
    watch_error: Option<String>,
}

type Key = (String, String);

/// The watched objects of one kind.
struct WatchedKind<K, T> {
    events: BoxStream<'static, Result<watcher::Event<K>, WatchError>>,
    convert: fn(K) -> T,
    objects: BTreeMap<Key, T>,
    /// Objects of a list that has not arrived completely.
    pending_list: BTreeMap<Key, T>,
    synced: bool,
}

impl LiveView {
    /// Starts the watches without waiting for a first list.
    pub fn new(cluster: &Cluster, query: &JobQuery) -> Self {
        let client = cluster.client.clone();
        let pods: Api<Pod> = if query.all_namespaces {
            Api::all(client)
        } else {
            Api::namespaced(client, &cluster.namespace().name)
        };
        let labels = match &query.name {
            Some(name) => format!("{}={name}", names::labels::JOB),
            None => names::labels::SELECTOR.to_owned(),
        };
        // Pages of 500 whole pods would take more memory than all that is kept.
        let config = watcher::Config::default().labels(&labels).page_size(100);
        let pods = watcher(pods, config);
        Self {
            pods: WatchedKind::new(pods, observe_pod),
            ..Self::of_jobs(cluster, query)
        }
    }

    /// Starts a watch of jobs without their pods.
    pub fn of_jobs(cluster: &Cluster, query: &JobQuery) -> Self {
        let (client, api) = (cluster.client.clone(), api_resource());
        let jobs: Api<DynamicObject> = if query.all_namespaces {
            Api::all_with(client, &api)
        } else {
            Api::namespaced_with(client, &cluster.namespace().name, &api)
        };
        let mut config = watcher::Config::default();
        config.label_selector.clone_from(&query.selector);
        config.field_selector = query.field_selector();
        let mut pods = WatchedKind::new(stream::pending(), observe_pod);
        pods.synced = true;
        Self {
            jobs: WatchedKind::new(watcher(jobs, config), convert_job),
            pods,
            watch_error: None,
        }
    }

    /// Waits for a change. The first call waits until both watches are synced.
    ///
    /// # Errors
    /// The user may not watch. An interrupted watch is resumed, see [`LiveView::watch_error`].
    pub async fn wait_for_change(&mut self) -> Result<()> {
        loop {
            let update = tokio::select! {
                update = self.jobs.next_event() => update,
                update = self.pods.next_event() => update,
            };
            let before = self.watch_error.take();
            match update {
                Ok(true) if self.jobs.synced && self.pods.synced => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    let text = error.to_string();
                    if let Some(status) = forbidden_status(error) {
                        return Err(Error::Server(status));
                    }
                    let is_first_error = before.is_none();
                    self.watch_error = Some(text);
                    if is_first_error && self.is_synced() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Whether both watches have delivered a complete list.
    pub fn is_synced(&self) -> bool {
        self.jobs.synced && self.pods.synced
    }

    /// Error of an interrupted watch, if any.
    pub fn watch_error(&self) -> Option<&str> {
        self.watch_error.as_deref()
    }

    /// All jobs in order of namespace and name.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.jobs.objects.values()
    }

    /// Finds a job by namespace and name.
    pub fn find_job(&self, namespace: &str, name: &str) -> Option<&Job> {
        let key = (namespace.to_owned(), name.to_owned());
        self.jobs.objects.get(&key)
    }

    /// The replicas of a job.
    pub fn replicas_of_job(&self, job: &Job) -> Vec<Replica> {
        let pods = self.pods.objects.iter();
        let owned = pods
            .filter(|((namespace, _), pod)| namespace == job.namespace() && pod.is_owned_by(job));
        join_plan_with_observed(job, owned.map(|(_, pod)| pod))
    }
}

fn convert_job(object: DynamicObject) -> Job {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    // API servers omit both fields in list items.
    let ApiResource {
        api_version, kind, ..
    } = api_resource();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("kind".to_owned(), kind.into());
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    }
    value.into()
}

#[allow(clippy::needless_pass_by_value)] // as `WatchedKind::convert` takes it
fn observe_pod(pod: Pod) -> ObservedPod {
    ObservedPod::from(&pod)
}

impl<K: ResourceExt, T> WatchedKind<K, T> {
    fn new(
        events: impl Stream<Item = Result<watcher::Event<K>, WatchError>> + Send + 'static,
        convert: fn(K) -> T,
    ) -> Self {
        Self {
            events: events.default_backoff().boxed(),
            convert,
            objects: BTreeMap::new(),
            pending_list: BTreeMap::new(),
            synced: false,
        }
    }

    /// Applies the next event. Returns whether the visible objects have changed.
    async fn next_event(&mut self) -> Result<bool, WatchError> {
        let Some(event) = self.events.next().await else {
            // A watcher stream never ends.
            return std::future::pending().await;
        };
        self.apply_event(event?);
        Ok(self.pending_list.is_empty())
    }

    fn apply_event(&mut self, event: watcher::Event<K>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            watcher::Event::Init => self.pending_list.clear(),
            watcher::Event::InitApply(object) => {
                self.pending_list
                    .insert(key(&object), (self.convert)(object));
            }
            watcher::Event::InitDone => {
                self.objects = std::mem::take(&mut self.pending_list);
                self.synced = true;
            }
            watcher::Event::Apply(object) => {
                self.objects.insert(key(&object), (self.convert)(object));
            }
            watcher::Event::Delete(object) => {
                self.objects.remove(&key(&object));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod
    }

    #[test]
    fn list_replaces_objects_once_complete() {
        let mut watched = WatchedKind::new(stream::empty(), observe_pod);
        let mut apply = |event| {
            watched.apply_event(event);
            let names: Vec<_> = watched
                .objects
                .keys()
                .map(|(_, name)| name.clone())
                .collect();
            (watched.synced, names.join(" "))
        };
        assert_eq!(apply(Event::Init), (false, String::new()));
        assert_eq!(apply(Event::InitApply(pod("a"))), (false, String::new()));
        assert_eq!(apply(Event::InitDone), (true, "a".to_owned()));
        assert_eq!(apply(Event::Apply(pod("b"))), (true, "a b".to_owned()));
        assert_eq!(apply(Event::Delete(pod("a"))), (true, "b".to_owned()));
        // The watch was interrupted and starts again.
        assert_eq!(apply(Event::Init), (true, "b".to_owned()));
        assert_eq!(apply(Event::InitApply(pod("c"))), (true, "b".to_owned()));
        assert_eq!(apply(Event::InitDone), (true, "c".to_owned()));
    }
}
