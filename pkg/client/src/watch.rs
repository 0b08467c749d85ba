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
            timeout: Some(LASTS),
            ..WatchParams::default()
        };
        self.resource(cluster).watch(&params, version).await
    }
}

type Events = BoxStream<'static, Result<WatchEvent<Value>, KubeError>>;

/// Before a lost connection is made anew, and ever longer while that fails.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// Seconds after which the server ends a connection.
const LASTS: u32 = 290;
/// One that says nothing for longer has nobody at its other end: a network may lose that without a word.
const SILENCE: Duration = Duration::from_secs(300);

struct Watch {
    cluster: Cluster,
    selection: Selection,
    version: String,
    events: Option<Events>,
    /// Whether the server does not know any more what happened since.
    stale: bool,
    /// What is to be told first.
    ahead: std::vec::IntoIter<Change<Value>>,
    /// What is there, by UID.
    known: HashMap<String, Value>,
    pause: Duration,
}

/// Every change of these objects, since `version`, when those that are `known` were there. Connections end now and then: it goes on where it
/// was, and when that is too long ago, with every object that is not as it was and those that have gone. What the server refuses ends it.
pub(crate) fn watch<'a>(
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
        ahead: Vec::new().into_iter(),
        known: known.map(|one| (uid(one), one.clone())).collect(),
        pause: PAUSE,
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
            if let Some(change) = self.ahead.next() {
                return Ok(change);
            }
            let Ok(step) = timeout(SILENCE, self.step()).await else {
                self.events = None;
                continue;
            };
            match step {
                Ok(Some(change)) => {
                    self.pause = PAUSE;
                    return Ok(change);
                }
                Ok(None) => {}
                Err(Error::Server(status)) if status.code == 410 => {
                    self.events = None;
                    self.stale = true;
                }
                Err(error) if may_pass(&error) => {
                    self.events = None;
                    sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(LONGEST);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Change<Value>>> {
        if self.stale {
            self.relist().await?;
            return Ok(None);
        }
        let Some(events) = &mut self.events else {
            let events = self.selection.open(&self.cluster, &self.version).await?;
            self.events = Some(events);
            return Ok(None);
        };
        let Some(event) = events.next().await else {
            self.events = None;
            sleep(self.pause).await;
            return Ok(None);
        };
        Ok(match event.map_err(|error| self.cluster.convert_error(error))? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.seen(&object);
                self.known.insert(uid(&object), object.clone());
                Some(Change::Applied(object))
            }
            WatchEvent::Deleted(object) => {
                self.seen(&object);
                self.known.remove(&uid(&object));
                Some(Change::Deleted(object))
            }
            WatchEvent::Bookmark(bookmark) => {
                self.version = bookmark.metadata.resource_version;
                None
            }
            WatchEvent::Error(status) => return Err(Error::Server(status)),
        })
    }

    async fn relist(&mut self) -> Result<()> {
        let list = self.selection.list(&self.cluster).await?;
        let here = list.items.iter().map(|one| (uid(one), one.clone()));
        let before = mem::replace(&mut self.known, here.collect());
        // What is as it was has been told.
        let mut news = list.items;
        news.retain(|one| {
            let old = before.get(&uid(one));
            old.is_none_or(|old| version(old) != version(one))
        });
        let gone = before.into_iter();
        let gone = gone.filter(|(uid, _)| !self.known.contains_key(uid));
        let gone = gone.map(|(_, object)| Change::Deleted(object));
        let all: Vec<_> = gone.chain(news.into_iter().map(Change::Applied)).collect();
        self.ahead = all.into_iter();
        self.version = list.resource_version;
        self.stale = false;
        Ok(())
    }

    fn seen(&mut self, object: &Value) {
        if let Some(version) = version(object) {
            version.clone_into(&mut self.version);
        }
    }
}

fn uid(object: &Value) -> String {
    let uid = object["metadata"]["uid"].as_str();
    uid.unwrap_or_default().to_owned()
}

fn version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

/// Whether it is worth another attempt: the connection was lost, or the server is busy or about to be replaced.
fn may_pass(error: &Error) -> bool {
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

    /// One answer, after which the connection is reset.
    pub(crate) async fn answer(server: &TcpListener, body: &Value) -> TcpStream {
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

    /// The same to its end.
    pub(crate) async fn answer_whole(server: &TcpListener, body: &Value) -> TcpStream {
        let mut connection = answer(server, body).await;
        connection.write_all(b"0\r\n\r\n").await.unwrap();
        connection
    }

    /// What is told in a watch from too long ago.
    pub(crate) fn expired() -> Value {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"});
        json!({"type": "ERROR", "object": status})
    }

    fn job(name: &str) -> Value {
        job_at(name, "2")
    }

    fn job_at(name: &str, version: &str) -> Value {
        json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": name, "uid": name, "resourceVersion": version},
        })
    }

    #[tokio::test]
    async fn what_happens_while_a_connection_is_lost_is_told() {
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
            let first = answer(&server, &added).await;
            // As long as it takes to be read.
            sleep(Duration::from_millis(200)).await;
            first.set_zero_linger().unwrap();
            drop(first);
            // One that does not even answer.
            drop(server.accept().await.unwrap());
            let old = answer(&server, &expired()).await;
            let list = json!({
                "kind": "DIJobList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [job("b"), job_at("c", "3")],
            });
            let list = answer_whole(&server, &list).await;
            (server, old, list)
        });
        assert_eq!(next().await, "c is there");
        assert_eq!(next().await, "a is gone");
        // And "b" is as it was.
        assert_eq!(next().await, "c is there");
        all_sent.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_falls_silent_is_made_anew() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::for_test_server(&server).await;
        let mut changes = watch_jobs(&cluster, &JobQuery::default(), "1", &[]);
        let added = json!({"type": "ADDED", "object": job("a")});
        // It stays open.
        let (_first, seen) = tokio::join!(answer(&server, &added), changes.next());
        assert!(matches!(seen, Some(Ok(Change::Applied(_)))));
        let mut next = changes.next();
        assert!(futures::poll!(&mut next).is_pending());
        time::pause();
        time::advance(SILENCE + Duration::from_secs(1)).await;
        time::resume();
        let again = async { tokio::join!(answer(&server, &added), next) };
        let (_second, seen) = timeout(Duration::from_secs(10), again).await.unwrap();
        assert!(matches!(seen, Some(Ok(Change::Applied(_)))));
    }
}
