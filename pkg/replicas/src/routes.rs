//! Routes, and what every request goes through.

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::Request,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use tokio::time::timeout;
use tower::ServiceExt;
use tracing::debug;
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouter},
    routes as route,
};

use crate::{
    State,
    error::{Error, Retryable},
    handlers::{add, health, list, remove, report_failed},
    metrics::{RequestLabels, Route},
};

/// Clients of this version give up at once when they see a 503, but try again after an answer that says why.
pub(crate) const LEGACY_STATUS_VERSION: &str = "/v1alpha1";
pub(crate) const VERSIONS: [&str; 2] = [LEGACY_STATUS_VERSION, "/v1alpha2"];
/// All paths, as labels of metrics, which must be few.
const PATHS: [&str; 8] = [
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/readyz",
    "/v1alpha1/replicas",
    "/v1alpha1/replicas/failed",
    "/v1alpha2/replicas",
    "/v1alpha2/replicas/failed",
];

/// The routes and their description.
pub(crate) fn routes() -> OpenApiRouter<State> {
    let mut all = OpenApiRouter::new()
        .routes(route!(health::healthz))
        .routes(route!(health::readyz))
        .routes(route!(health::metrics))
        .routes(route!(health::openapi));
    for version in VERSIONS {
        let replicas = route!(list::list, add::add, remove::remove);
        all = all
            .routes(under(version, replicas))
            .routes(under(version, route!(report_failed::report_failed)));
    }
    all
}

/// Routes with a prefix. Nested ones would have the path of each request written anew.
fn under(prefix: &str, routes: UtoipaMethodRouter<State>) -> UtoipaMethodRouter<State> {
    let (schemas, mut paths, methods) = routes;
    let all = paths.paths.into_iter();
    paths.paths = all
        .map(|(path, item)| (format!("{prefix}{path}"), item))
        .collect();
    (schemas, paths, methods)
}

/// The endpoint without its connections.
#[derive(Clone, Debug)]
pub struct Endpoint {
    routes: Router,
    state: State,
}

impl Endpoint {
    /// Serves what the caches hold.
    pub fn new(state: State) -> Self {
        Self::of(Router::from(routes()), state)
    }

    fn of(routes: Router<State>, state: State) -> Self {
        let routes = routes
            .fallback(async || Error::NotFound("there is no such path".to_owned()))
            .method_not_allowed_fallback(async || Error::MethodNotSupported)
            .with_state(state.clone());
        Self { routes, state }
    }

    /// Answers a request, whatever it is and whatever becomes of it, within a time and in the common form.
    pub async fn answer(&self, request: Request) -> Response {
        let Self { routes, state } = self;
        let began = Instant::now();
        let method = known(request.method());
        let path = request.uri().path();
        let is_legacy = path.starts_with(LEGACY_STATUS_VERSION);
        let route = PATHS.into_iter().find(|known| *known == path);
        let route = route.unwrap_or("other");
        let handled = routes.clone().oneshot(request);
        let handled = handled.map(|Ok(response)| response);
        let mut response = answer(handled, state.settings.request_timeout).await;
        let code = response.status().as_u16();
        let taken = began.elapsed().as_secs_f64();
        debug!(route, method, code, seconds = taken, "Answered");
        let metrics = &state.metrics;
        let answered = RequestLabels {
            route,
            method,
            code,
        };
        metrics.requests.get_or_create(&answered).inc();
        let duration = metrics.duration.get_or_create(&Route { route, method });
        duration.observe(taken);
        drop(duration);
        if is_legacy && response.extensions().get::<Retryable>().is_some() {
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove(header::RETRY_AFTER);
        }
        response
    }
}

/// Whatever becomes of the handler, its client is answered. The runtime has logged a panic.
async fn answer(handler: impl Future<Output = Response>, longest: Duration) -> Response {
    match timeout(longest, AssertUnwindSafe(handler).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Error::Internal("the request could not be served").into_response(),
        Err(_) => Error::Unavailable("the request took too long".to_owned()).into_response(),
    }
}

/// Methods as labels of metrics, which must be few.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests;
