//! The routes, and the requests that are answered at once.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, Request, State, rejection::QueryRejection},
    http::header,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use di_client::{
    EventFilter, FindingState, NodeList, SampledStatus, VERSION, get_job, list_events, list_nodes,
    list_queue, run_checks, sample_status,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    actions,
    error::{Error, Result},
    guard::SESSION_PATH,
    logs,
    page::page_routes,
    request::{JobPath, read_json},
    shared::Shared,
    views, watch,
};

/// Maximum number of events of a job in a response.
const MAX_EVENTS: usize = 200;
/// Number of replicas whose status is read: each call costs the API server a connection to a pod.
const SAMPLED_REPLICAS: u32 = 32;
/// Time limit of one call. The next response has the replicas that answered too late.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Builds all routes.
pub(crate) fn build_routes(shared: &Arc<Shared>) -> Router {
    let mut routes = page_routes()
        .route(SESSION_PATH, get(get_session).post(create_session))
        .route("/api/watch", get(watch::stream_changes))
        .route("/api/queue", get(get_queue))
        .route("/api/nodes", get(get_nodes))
        .route("/api/doctor", get(get_doctor))
        .route("/api/jobs/{namespace}/{name}/events", get(get_events))
        .route("/api/jobs/{namespace}/{name}/training", get(get_training))
        .route("/api/jobs/{namespace}/{name}/logs", get(logs::stream_logs));
    if !shared.read_only {
        for path in actions::PATHS {
            let route = format!("/api/jobs/{{namespace}}/{{name}}/{path}");
            let handle =
                move |State(shared): State<Arc<Shared>>, job: JobPath, request: Request| {
                    actions::post_action(path, shared, job, request)
                };
            routes = routes.route(&route, post(handle));
        }
    }
    routes
        .fallback(async || Error::NotFound)
        .method_not_allowed_fallback(async || Error::MethodNotAllowed)
        .with_state(shared.clone())
}

/// The namespace in a query: none for the first one of the page, `*` for all.
#[derive(Debug, Deserialize)]
struct NamespaceQuery {
    namespace: Option<String>,
}

async fn get_session(State(shared): State<Arc<Shared>>) -> Json<Value> {
    shared.describe_session()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionBody {
    token: String,
}

async fn create_session(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response> {
    let SessionBody { token } = read_json(request).await?;
    if !shared.is_token(&token) {
        return Err(Error::Unauthorized);
    }
    let cookie = [(header::SET_COOKIE, shared.set_cookie())];
    Ok((cookie, shared.describe_session()).into_response())
}

async fn get_queue(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<NamespaceQuery>, QueryRejection>,
) -> Result<Json<Value>> {
    let Query(NamespaceQuery { namespace }) = query?;
    let (cluster, all_namespaces) = shared.select_namespace(namespace.as_deref())?;
    let rows = list_queue(&cluster, None, all_namespaces).await?;
    Ok(Json(json!({"rows": rows})))
}

async fn get_nodes(State(shared): State<Arc<Shared>>) -> Result<Json<Value>> {
    let NodeList { nodes, pods_hidden } = list_nodes(&shared.cluster).await?;
    let pods_hidden = pods_hidden.map(|error| error.to_string());
    Ok(Json(json!({"nodes": nodes, "podsHidden": pods_hidden})))
}

async fn get_doctor(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let findings = run_checks(&shared.cluster, VERSION).await;
    let findings = findings.iter().map(|finding| {
        let state = match finding.state {
            FindingState::Ok => "ok",
            FindingState::Unknown => "unknown",
            FindingState::Warning => "warning",
            FindingState::Error => "error",
        };
        json!({
            "check": finding.check,
            "state": state,
            "message": finding.message,
            "remedy": finding.remedy,
        })
    });
    Json(json!({"findings": findings.collect::<Vec<_>>()}))
}

async fn get_events(State(shared): State<Arc<Shared>>, job: JobPath) -> Result<Json<Value>> {
    let cluster = shared.cluster.with_namespace(&job.namespace);
    let job = get_job(&cluster, &job.name).await?;
    let found = list_events(&cluster, &mut EventFilter::for_job(&job)).await?;
    let newest = found.events.iter().rev().take(MAX_EVENTS);
    let events: Vec<_> = newest.map(views::event_row).collect();
    Ok(Json(json!({"events": events})))
}

async fn get_training(State(shared): State<Arc<Shared>>, job: JobPath) -> Result<Json<Value>> {
    let cluster = shared.cluster.with_namespace(&job.namespace);
    let job = get_job(&cluster, &job.name).await?;
    let sampled = sample_status(&cluster, &job, SAMPLED_REPLICAS, CALL_TIMEOUT).await?;
    let SampledStatus { replies, total } = sampled;
    Ok(Json(json!({
        "at": Time(Timestamp::now()),
        "called": replies.len(),
        "total": total,
        "replicas": replies,
    })))
}
