use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    core::{
        ApiResource, WatchEvent,
        params::{ListParams, WatchParams},
    },
    error::Error as KubeError,
};
use serde_json::Value;

use crate::{
    Cluster, Error, Result,
    resource::{Listed, Resource},
};

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// It is there, new or changed.
    Applied(T),
    /// It is gone; this was its last state.
    Deleted(T),
}

/// Objects of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) api: ApiResource,
    /// None means every namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    /// How many a page; 0 asks for all at once.
    pub(crate) page: Option<u32>,
}

impl Selection {
    fn resource<'a>(&'a self, cluster: &'a Cluster) -> Resource<'a> {
        Resource::new(cluster, &self.api, self.namespace.as_deref())
    }

    pub(crate) async fn list(&self, cluster: &Cluster) -> Result<Listed> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: self.page,
            ..ListParams::default()
        };
        self.resource(cluster).list(&params).await
    }

    async fn open(&self, cluster: &Cluster, version: &str) -> Result<Events> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            ..WatchParams::default()
        };
        self.resource(cluster).watch(&params, version).await
    }
}

type Events = BoxStream<'static, Result<WatchEvent<Value>, KubeError>>;

struct Watch {
    cluster: Cluster,
    selection: Selection,
    version: String,
    events: Option<Events>,
    listed: std::vec::IntoIter<Value>,
}

/// Every change of these objects, since `version`. Servers end watches now and then: it goes on where it was, and when that is too long
/// ago, with every object as it is. The first error ends it.
pub(crate) fn watch(
    cluster: &Cluster,
    selection: Selection,
    version: &str,
) -> BoxStream<'static, Result<Change<Value>>> {
    let watch = Watch {
        cluster: cluster.clone(),
        selection,
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
    async fn next(&mut self) -> Result<Change<Value>> {
        loop {
            if let Some(object) = self.listed.next() {
                return Ok(Change::Applied(object));
            }
            let Some(events) = &mut self.events else {
                match self.selection.open(&self.cluster, &self.version).await {
                    Err(Error::Server(status)) if status.code == 410 => {
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
                    self.seen(&object);
                    return Ok(Change::Applied(object));
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    self.seen(&object);
                    return Ok(Change::Deleted(object));
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    self.version = bookmark.metadata.resource_version;
                }
                Some(Ok(WatchEvent::Error(status)) | Err(KubeError::Api(status)))
                    if status.code == 410 =>
                {
                    self.relist().await?;
                }
                Some(Ok(WatchEvent::Error(status))) => return Err(Error::Server(status)),
                Some(Err(error)) => return Err(self.cluster.error(error)),
            }
        }
    }

    async fn relist(&mut self) -> Result<()> {
        let list = self.selection.list(&self.cluster).await?;
        self.version = list.resource_version;
        self.listed = list.items.into_iter();
        self.events = None;
        Ok(())
    }

    fn seen(&mut self, object: &Value) {
        if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
            version.clone_into(&mut self.version);
        }
    }
}
