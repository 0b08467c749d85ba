//! The handling that all requests share: timeout, panics, metrics.

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

use crate::{
    error::Error,
    metrics::{RequestLabels, Route},
    openapi::openapi_document,
    polls::{LongPolled, extra_time},
    routes::build_routes,
    state::State,
    versions::is_legacy_path,
    wire::Retryable,
};

/// All paths. Metrics use them as labels, so that the number of labels is bounded.
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

/// The HTTP service, without the accept loop.
#[derive(Clone, Debug)]
pub struct Endpoint {
    routes: Router,
    state: State,
}

impl Endpoint {
    /// Creates the service with all routes.
    pub fn new(state: State) -> Self {
        let document = || openapi_document(&state.settings).into();
        state.openapi.get_or_init(document);
        Self::with_routes(Router::from(build_routes()), state)
    }

    fn with_routes(routes: Router<State>, state: State) -> Self {
        let routes = routes
            .fallback(async || Error::NotFound("path not found".to_owned()))
            .method_not_allowed_fallback(async || Error::MethodNotSupported)
            .with_state(state.clone());
        Self { routes, state }
    }

    /// Handles a request. Always returns a response in the common form, also after a timeout or panic.
    pub async fn handle_request(&self, request: Request) -> Response {
        let Self { routes, state } = self;
        let began = Instant::now();
        let method = method_label(request.method());
        let path = request.uri().path();
        let is_legacy = is_legacy_path(path);
        let route = PATHS.into_iter().find(|known| *known == path);
        let route = route.unwrap_or("other");
        let limit = state.settings.request_timeout + extra_time(request.uri());
        let handled = routes.clone().oneshot(request);
        let handled = handled.map(|Ok(response)| response);
        let mut response = run_handler(handled, limit).await;
        let code = response.status().as_u16();
        let taken = began.elapsed().as_secs_f64();
        debug!(route, method, code, seconds = taken, "Handled a request");
        let metrics = &state.metrics;
        let labels = RequestLabels {
            route,
            method,
            code,
        };
        metrics.requests.get_or_create(&labels).inc();
        if response.extensions().get::<LongPolled>().is_none() {
            let duration = metrics.duration.get_or_create(&Route { route, method });
            duration.observe(taken);
        }
        if is_legacy && response.extensions().get::<Retryable>().is_some() {
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove(header::RETRY_AFTER);
        }
        response
    }
}

/// Runs a handler with a timeout, and returns an error response if it panics. The panic hook logs the
/// panic.
async fn run_handler(handler: impl Future<Output = Response>, limit: Duration) -> Response {
    match timeout(limit, AssertUnwindSafe(handler).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Error::Internal("the request could not be served").into_response(),
        Err(_) => Error::Unavailable("the request took too long".to_owned()).into_response(),
    }
}

/// Returns the metrics label of a method; the number of labels is bounded.
fn method_label(method: &Method) -> &'static str {
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
