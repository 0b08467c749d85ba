use std::{collections::HashMap, mem, time::Duration};

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
use tokio::time::{sleep, timeout};

use crate::{
    Cluster, Error, Result,
    connection::resource::{ListedObjects, Resource},
};

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// The object was created or changed, or existed before.
    Applied(T),
    /// The object was deleted. Contains its last state.
    Deleted(T),
}

/// Selects objects of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) api: ApiResource,
    /// `None` means all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
}

impl Selection {
    fn resource_client<'a>(&'a self, cluster: &'a Cluster) -> Resource<'a> {
        Resource::new(cluster, &self.api, self.namespace.as_deref())
    }

    pub(crate) async fn list(&self, cluster: &Cluster) -> Result<ListedObjects> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            ..ListParams::default()
        };
        self.resource_client(cluster).list(&params).await
    }

    async fn open_watch(&self, cluster: &Cluster, version: &str) -> Result<Events> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        self.resource_client(cluster).watch(&params, version).await
    }
}

type Events = BoxStream<'static, Result<WatchEvent<Value>, KubeError>>;

/// First pause before a lost connection is opened again. It doubles up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Seconds after which the server ends a watch.
const WATCH_SECONDS: u32 = 290;
/// A watch without data for this time is dead: it exceeds [`WATCH_SECONDS`], and networks can drop
/// connections silently.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

struct Watch {
    cluster: Cluster,
    selection: Selection,
    version: String,
    events: Option<Events>,
    /// Whether the version has expired, so that a new list is needed.
    stale: bool,
    /// Changes to yield before reading from the watch.
    queued: std::vec::IntoIter<Change<Value>>,
    /// Known objects by UID.
    known: HashMap<String, Value>,
    pause: Duration,
}

/// Watches the selected objects from `version`, at which the `known` objects existed.
///
/// A lost connection is resumed. If the version has expired (410 Gone), the stream lists again and
/// yields all changed and deleted objects. A non-retryable error ends the stream.
pub(crate) fn watch_objects<'a>(
    cluster: &Cluster,
    selection: Selection,
    version: &str,
    known: impl IntoIterator<Item = &'a Value>,
) -> BoxStream<'static, Result<Change<Value>>> {
    let known = known.into_iter();
    let watch = Watch {
        cluster: cluster.clone(),
        selection,
        version: version.to_owned(),
        events: None,
        stale: false,
        queued: Vec::new().into_iter(),
        known: known.map(|one| (uid_of(one), one.clone())).collect(),
        pause: MIN_PAUSE,
    };
    stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next_change().await {
            Ok(event) => Some((Ok(event), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

impl Watch {
    async fn next_change(&mut self) -> Result<Change<Value>> {
        loop {
            if let Some(change) = self.queued.next() {
                return Ok(change);
            }
            let Ok(polled) = timeout(IDLE_TIMEOUT, self.poll_once()).await else {
                self.events = None;
                continue;
            };
            match polled {
                Ok(Some(change)) => {
                    self.pause = MIN_PAUSE;
                    return Ok(change);
                }
                Ok(None) => {}
                Err(Error::Server(status)) if status.code == 410 => {
                    self.events = None;
                    self.stale = true;
                }
                Err(error) if is_retryable(&error) => {
                    self.events = None;
                    sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(MAX_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn poll_once(&mut self) -> Result<Option<Change<Value>>> {
        if self.stale {
            self.relist().await?;
            return Ok(None);
        }
        let Some(events) = &mut self.events else {
            let events = self
                .selection
                .open_watch(&self.cluster, &self.version)
                .await?;
            self.events = Some(events);
            return Ok(None);
        };
        let Some(event) = events.next().await else {
            self.events = None;
            sleep(self.pause).await;
            return Ok(None);
        };
        Ok(
            match event.map_err(|error| self.cluster.convert_error(error))? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.note_version(&object);
                    self.known.insert(uid_of(&object), object.clone());
                    Some(Change::Applied(object))
                }
                WatchEvent::Deleted(object) => {
                    self.note_version(&object);
                    self.known.remove(&uid_of(&object));
                    Some(Change::Deleted(object))
                }
                WatchEvent::Bookmark(bookmark) => {
                    self.version = bookmark.metadata.resource_version;
                    None
                }
                WatchEvent::Error(status) => return Err(Error::Server(status)),
            },
        )
    }

    async fn relist(&mut self) -> Result<()> {
        let list = self.selection.list(&self.cluster).await?;
        let here = list.items.iter().map(|one| (uid_of(one), one.clone()));
        let before = mem::replace(&mut self.known, here.collect());
        // Unchanged objects were yielded before.
        let mut changed = list.items;
        changed.retain(|one| {
            let old = before.get(&uid_of(one));
            old.is_none_or(|old| version_of(old) != version_of(one))
        });
        let deleted = before.into_iter();
        let deleted = deleted.filter(|(uid, _)| !self.known.contains_key(uid));
        let deleted = deleted.map(|(_, object)| Change::Deleted(object));
        let all: Vec<_> = deleted
            .chain(changed.into_iter().map(Change::Applied))
            .collect();
        self.queued = all.into_iter();
        self.version = list.resource_version;
        self.stale = false;
        Ok(())
    }

    fn note_version(&mut self, object: &Value) {
        if let Some(version) = version_of(object) {
            version.clone_into(&mut self.version);
        }
    }
}

fn uid_of(object: &Value) -> String {
    let uid = object["metadata"]["uid"].as_str();
    uid.unwrap_or_default().to_owned()
}

fn version_of(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

/// Whether the request should be retried: lost connection, busy or restarting server.
fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } | Error::Client(KubeError::ReadEvents(_)) => true,
        Error::Server(status) => matches!(status.code, 429 | 500..=599),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        time,
    };

    use super::*;
    use crate::{JobQuery, watch_jobs};

    /// Sends a chunked response without its end.
    pub(crate) async fn send_response(server: &TcpListener, body: &Value) -> TcpStream {
        let (mut connection, _) = server.accept().await.unwrap();
        let mut request = vec![0; 64 * 1024];
        let _ = connection.read(&mut request).await.unwrap();
        let body = format!("{body}\n");
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
            body.len()
        );
        connection.write_all(text.as_bytes()).await.unwrap();
        connection
    }

    /// Sends a complete response.
    pub(crate) async fn send_full_response(server: &TcpListener, body: &Value) -> TcpStream {
        let mut connection = send_response(server, body).await;
        connection.write_all(b"0\r\n\r\n").await.unwrap();
        connection
    }

    /// The event of a watch whose version has expired.
    pub(crate) fn expired_event() -> Value {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"});
        json!({"type": "ERROR", "object": status})
    }

    fn job(name: &str) -> Value {
        job_at(name, "2")
    }

    fn job_at(name: &str, version: &str) -> Value {
        let metadata = json!({"name": name, "uid": name, "resourceVersion": version});
        di_fixtures::Job::test().metadata(metadata).json()
    }

    #[tokio::test]
    async fn changes_during_lost_connection_are_reported() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::for_test_server(&server).await;
        let known = [job("a").into(), job("b").into()];
        let mut changes = watch_jobs(&cluster, &JobQuery::default(), "1", &known);
        let mut next = async || match changes.next().await.unwrap().unwrap() {
            Change::Applied(job) => format!("{} is there", job.name()),
            Change::Deleted(job) => format!("{} is gone", job.name()),
        };
        let all_sent = tokio::spawn(async move {
            let added = json!({"type": "ADDED", "object": job("c")});
            let first = send_response(&server, &added).await;
            // Leave the client time to read the response.
            sleep(Duration::from_millis(200)).await;
            first.set_zero_linger().unwrap();
            drop(first);
            // A connection without any response.
            drop(server.accept().await.unwrap());
            let old = send_response(&server, &expired_event()).await;
            let list = json!({
                "kind": "DIJobList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [job("b"), job_at("c", "3")],
            });
            let list = send_full_response(&server, &list).await;
            (server, old, list)
        });
        assert_eq!(next().await, "c is there");
        assert_eq!(next().await, "a is gone");
        // "b" is unchanged.
        assert_eq!(next().await, "c is there");
        all_sent.await.unwrap();
    }

    #[tokio::test]
    async fn idle_connection_is_reopened() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::for_test_server(&server).await;
        let mut changes = watch_jobs(&cluster, &JobQuery::default(), "1", &[]);
        let added = json!({"type": "ADDED", "object": job("a")});
        // The connection stays open.
        let (_first, seen) = tokio::join!(send_response(&server, &added), changes.next());
        assert!(matches!(seen, Some(Ok(Change::Applied(_)))));
        let mut next = changes.next();
        assert!(futures::poll!(&mut next).is_pending());
        time::pause();
        time::advance(IDLE_TIMEOUT + Duration::from_secs(1)).await;
        time::resume();
        let again = async { tokio::join!(send_response(&server, &added), next) };
        let (_second, seen) = timeout(Duration::from_secs(10), again).await.unwrap();
        assert!(matches!(seen, Some(Ok(Change::Applied(_)))));
    }
}
