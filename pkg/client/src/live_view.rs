use std::collections::BTreeMap;

use di_api::names;
use futures::{Stream, StreamExt, stream::BoxStream};
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
    follow::refusal,
    jobs::api,
    replicas::{is_of, join_plan_with_pods},
};

/// Jobs and their pods as they are now, kept up to date by watches.
pub struct LiveView {
    jobs: Mirror<DynamicObject, Job>,
    pods: Mirror<Pod, Pod>,
    /// Why they may be out of date, while a watch is interrupted.
    trouble: Option<String>,
}

type Key = (String, String);

/// What a watch has told of one kind.
struct Mirror<K, T> {
    events: BoxStream<'static, Result<watcher::Event<K>, WatchError>>,
    read: fn(K) -> T,
    here: BTreeMap<Key, T>,
    /// A list that has begun to arrive and is not whole yet.
    coming: BTreeMap<Key, T>,
    whole: bool,
}

impl LiveView {
    /// Begins to watch; nothing is known yet.
    pub fn new(cluster: &Cluster, query: &JobQuery) -> Self {
        let client = || cluster.client.clone();
        let namespace = &cluster.namespace().name;
        let api = api();
        let (jobs, pods): (Api<DynamicObject>, Api<Pod>) = if query.all_namespaces {
            (Api::all_with(client(), &api), Api::all(client()))
        } else {
            (
                Api::namespaced_with(client(), namespace, &api),
                Api::namespaced(client(), namespace),
            )
        };
        let mut which = watcher::Config::default();
        which.label_selector.clone_from(&query.selector);
        which.field_selector = query.fields();
        let of = match &query.name {
            Some(name) => format!("{}={name}", names::labels::JOB),
            None => names::labels::SELECTOR.to_owned(),
        };
        Self {
            jobs: Mirror::new(watcher(jobs, which), job),
            pods: Mirror::new(
                watcher(pods, watcher::Config::default().labels(&of)),
                pruned,
            ),
            trouble: None,
        }
    }

    /// Waits until something has changed, the first time until everything is known.
    ///
    /// # Errors
    /// When the server refuses the watch; an interrupted one goes on by itself, see [`LiveView::trouble`].
    pub async fn changed(&mut self) -> Result<()> {
        loop {
            let told = tokio::select! {
                told = self.jobs.next() => told,
                told = self.pods.next() => told,
            };
            let before = self.trouble.take();
            match told {
                Ok(true) if self.jobs.whole && self.pods.whole => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    let text = error.to_string();
                    if let Some(status) = refusal(error) {
                        return Err(Error::Server(status));
                    }
                    let is_news = before.is_none();
                    self.trouble = Some(text);
                    if is_news && self.is_known() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Whether everything was told once.
    pub fn is_known(&self) -> bool {
        self.jobs.whole && self.pods.whole
    }

    /// Why what is shown may be out of date.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The jobs, by namespace and name.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.jobs.here.values()
    }

    /// A job.
    pub fn job(&self, namespace: &str, name: &str) -> Option<&Job> {
        let key = (namespace.to_owned(), name.to_owned());
        self.jobs.here.get(&key)
    }

    /// A job's replicas.
    pub fn replicas(&self, job: &Job) -> Vec<Replica> {
        let pods = self.pods.here.iter();
        let pods: Vec<_> = pods
            .filter(|((namespace, _), pod)| namespace == job.namespace() && is_of(pod, job))
            .map(|(_, pod)| pod.clone())
            .collect();
        join_plan_with_pods(job, &pods)
    }
}

fn job(object: DynamicObject) -> Job {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    // Servers leave them out of the items of a list.
    let ApiResource {
        api_version, kind, ..
    } = api();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("kind".to_owned(), kind.into());
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    }
    value.into()
}

fn pruned(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    pod
}

impl<K: ResourceExt, T> Mirror<K, T> {
    fn new(
        events: impl Stream<Item = Result<watcher::Event<K>, WatchError>> + Send + 'static,
        read: fn(K) -> T,
    ) -> Self {
        Self {
            events: events.default_backoff().boxed(),
            read,
            here: BTreeMap::new(),
            coming: BTreeMap::new(),
            whole: false,
        }
    }

    /// Takes in what the watch tells next; whether that is to be seen.
    async fn next(&mut self) -> Result<bool, WatchError> {
        let Some(event) = self.events.next().await else {
            // It has no end.
            return std::future::pending().await;
        };
        self.take(event?);
        Ok(self.coming.is_empty())
    }

    fn take(&mut self, event: watcher::Event<K>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            watcher::Event::Init => self.coming.clear(),
            watcher::Event::InitApply(object) => {
                self.coming.insert(key(&object), (self.read)(object));
            }
            watcher::Event::InitDone => {
                self.here = std::mem::take(&mut self.coming);
                self.whole = true;
            }
            watcher::Event::Apply(object) => {
                self.here.insert(key(&object), (self.read)(object));
            }
            watcher::Event::Delete(object) => {
                self.here.remove(&key(&object));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::runtime::watcher::Event;

    use super::*;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod
    }

    #[test]
    fn a_list_takes_the_place_of_what_was_known_once_it_is_whole() {
        let mut mirror = Mirror::new(stream::empty(), pruned);
        let mut told = |event| {
            mirror.take(event);
            let names: Vec<_> = mirror.here.keys().map(|(_, name)| name.clone()).collect();
            (mirror.whole, names.join(" "))
        };
        assert_eq!(told(Event::Init), (false, String::new()));
        assert_eq!(told(Event::InitApply(pod("a"))), (false, String::new()));
        assert_eq!(told(Event::InitDone), (true, "a".to_owned()));
        assert_eq!(told(Event::Apply(pod("b"))), (true, "a b".to_owned()));
        assert_eq!(told(Event::Delete(pod("a"))), (true, "b".to_owned()));
        // The watch was interrupted, and begins anew.
        assert_eq!(told(Event::Init), (true, "b".to_owned()));
        assert_eq!(told(Event::InitApply(pod("c"))), (true, "b".to_owned()));
        assert_eq!(told(Event::InitDone), (true, "c".to_owned()));
    }
}
