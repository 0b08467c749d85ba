//! Routes, and what every request goes through.

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{MatchedPath, Request, State as Extract},
    http::{Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use tokio::time::timeout;
use tracing::debug;
use utoipa_axum::{router::OpenApiRouter, routes as route};

use crate::{
    State,
    error::{Error, WillPass},
    handlers::{add, failed, health, list, remove},
    metrics::{Answered, Route},
};

/// Clients of this version give up at once when they see a 503, but try again after an answer that says why.
pub(crate) const FORGIVING: &str = "/v1alpha1";
pub(crate) const VERSIONS: [&str; 2] = [FORGIVING, "/v1alpha2"];

/// The routes and their description.
pub(crate) fn routes() -> OpenApiRouter<State> {
    let mut all = OpenApiRouter::new()
        .routes(route!(health::healthz))
        .routes(route!(health::readyz))
        .routes(route!(health::metrics))
        .routes(route!(health::openapi));
    for version in VERSIONS {
        let replicas = OpenApiRouter::new()
            .routes(route!(list::list, add::add, remove::remove))
            .routes(route!(failed::failed));
        all = all.nest(version, replicas);
    }
    all
}

/// The endpoint without its connections.
pub fn router(state: State) -> Router {
    within_limits(Router::from(routes()), state)
}

/// Every request of these routes ends, with an answer in the common form.
fn within_limits(routes: Router<State>, state: State) -> Router {
    routes
        .fallback(async || Error::NotFound("there is no such path".to_owned()))
        .method_not_allowed_fallback(async || Error::NotImplemented)
        .layer(from_fn_with_state(state.clone(), observe))
        .with_state(state)
}

/// Bounds the time of each request, counts it, and puts faults that will pass as its client expects them.
async fn observe(Extract(state): Extract<State>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let forgiving = request.uri().path().starts_with(FORGIVING);
    let method = known(request.method());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", MatchedPath::as_str)
        .to_owned();
    let mut response = answer(next.run(request), state.settings.request_timeout).await;
    let code = response.status().as_u16();
    debug!(
        route,
        method,
        code,
        seconds = began.elapsed().as_secs_f64(),
        "Answered"
    );
    let metrics = &state.metrics;
    let answered = Answered {
        route: route.clone(),
        method,
        code,
    };
    metrics.requests.get_or_create(&answered).inc();
    let duration = metrics.duration.get_or_create(&Route { route, method });
    duration.observe(began.elapsed().as_secs_f64());
    drop(duration);
    if forgiving && response.extensions().get::<WillPass>().is_some() {
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().remove(header::RETRY_AFTER);
    }
    response
}

/// Whatever becomes of the handler, its client is answered. The runtime has logged a panic.
async fn answer(handler: impl Future<Output = Response>, longest: Duration) -> Response {
    match timeout(longest, AssertUnwindSafe(handler).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => Error::Internal("the request could not be served").into_response(),
        Err(_) => Error::Passing("the request took too long".to_owned()).into_response(),
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
