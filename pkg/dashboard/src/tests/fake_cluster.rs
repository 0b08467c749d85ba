//! An API server with lists and watches of jobs and pods.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use futures::stream;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

/// A fake API server.
#[derive(Clone)]
pub struct FakeCluster {
    pub address: SocketAddr,
    state: Arc<Mutex<FakeState>>,
    /// The number of changes.
    version: Arc<watch::Sender<usize>>,
}

#[derive(Default)]
struct FakeState {
    /// Objects by resource and name.
    objects: BTreeMap<(String, String), Value>,
    /// Resource and event of each change. The version of an object is its number of changes.
    changes: Vec<(String, Value)>,
    /// Permissions that the user does not have, such as `list pods`.
    refused: Vec<&'static str>,
    /// The changes that were requested: method, path and body.
    requests: Vec<String>,
}

impl FakeCluster {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
            version: Arc::new(watch::Sender::new(0)),
        };
        let router = Router::new().fallback(reply).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses this permission.
    pub fn refuse(&self, permission: &'static str) {
        self.state().refused.push(permission);
    }

    /// Creates or changes an object.
    pub fn apply(&self, resource: &str, object: &Value) {
        self.change(resource, object, "MODIFIED");
    }

    /// Deletes an object.
    pub fn delete(&self, resource: &str, object: &Value) {
        self.change(resource, object, "DELETED");
    }

    fn change(&self, resource: &str, object: &Value, kind: &str) {
        let mut state = self.state();
        let version = state.changes.len() + 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (resource.to_owned(), name);
        if kind == "DELETED" {
            state.objects.remove(&key);
        } else {
            state.objects.insert(key, object.clone());
        }
        let event = json!({"type": kind, "object": object});
        state.changes.push((resource.to_owned(), event));
        self.version.send_replace(version);
    }

    /// The requested changes so far.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    fn list(&self, resource: &str) -> Value {
        let state = self.state();
        let objects = state.objects.iter();
        let items: Vec<_> = objects
            .filter(|((of, _), _)| of == resource)
            .map(|(_, object)| object.clone())
            .collect();
        let version = state.changes.len().to_string();
        json!({
            "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version},
            "items": items,
        })
    }

    /// Sends the changes after a version, and all later ones.
    fn watch(&self, resource: &str, version: usize) -> Response {
        let (fake, resource) = (self.clone(), resource.to_owned());
        let versions = self.version.subscribe();
        let events = stream::unfold((version, versions), move |(at, mut versions)| {
            let (fake, resource) = (fake.clone(), resource.clone());
            async move {
                // An error means that the server has ended.
                let next = versions
                    .wait_for(|now| *now > at)
                    .await
                    .ok()
                    .map(|now| *now)?;
                let state = fake.state();
                let changes = state.changes[at..next].iter();
                let lines = changes.filter(|(of, _)| *of == resource);
                let lines: String = lines
                    .flat_map(|(_, event)| [event.to_string(), "\n".into()])
                    .collect();
                Some((Ok::<_, Infallible>(lines), (next, versions)))
            }
        });
        Body::from_stream(events).into_response()
    }
}

fn error(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message, "details": {"name": "object"},
    });
    let code = StatusCode::from_u16(code).unwrap();
    (code, Json(status)).into_response()
}

async fn reply(State(fake): State<FakeCluster>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    if path.ends_with("/selfsubjectaccessreviews") {
        return review(&fake, &body);
    }
    let segments: Vec<_> = path.split('/').collect();
    match (parts.method, &segments[..]) {
        (Method::GET, [.., "namespaces", "rl", resource @ ("dijobs" | "pods")]) => {
            let refused = format!("list {resource}");
            if fake.state().refused.iter().any(|one| *one == refused) {
                return error(403, "Forbidden", &format!("{resource} is forbidden"));
            }
            if !query.split('&').any(|part| part == "watch=true") {
                return Json(fake.list(resource)).into_response();
            }
            let version = query.split('&').find_map(|part| {
                let version = part.strip_prefix("resourceVersion=")?;
                version.parse().ok()
            });
            fake.watch(resource, version.unwrap_or(0))
        }
        (method, [.., resource @ ("dijobs" | "pods"), name]) => {
            let key = ((*resource).to_owned(), (*name).to_owned());
            let mut state = fake.state();
            if method != Method::GET {
                let body = String::from_utf8_lossy(&body);
                state.requests.push(format!("{method} {name} {body}"));
            }
            match state.objects.get(&key) {
                Some(object) => Json(object.clone()).into_response(),
                None => error(404, "NotFound", "not found"),
            }
        }
        _ => error(404, "NotFound", "not found"),
    }
}

fn review(fake: &FakeCluster, body: &[u8]) -> Response {
    let mut review: Value = serde_json::from_slice(body).unwrap();
    let asked = &review["spec"]["resourceAttributes"];
    let text = |name: &str| asked[name].as_str().unwrap_or_default();
    let mut permission = format!("{} {}", text("verb"), text("resource"));
    if asked["subresource"].is_string() {
        permission = format!("{permission}/{}", text("subresource"));
    }
    let allowed = !fake.state().refused.iter().any(|one| *one == permission);
    review["status"] = json!({"allowed": allowed});
    (StatusCode::CREATED, Json(review)).into_response()
}
