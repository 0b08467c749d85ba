//! Routes, limits, and the loop that accepts connections.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{ConnectInfo, MatchedPath, Request, State as Extract},
    http::{Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::timeout,
};
use tower::ServiceExt;
use tracing::{debug, info, warn};

use crate::{
    State,
    error::{Error, WillPass},
    handlers,
    metrics::{Answered, Route},
};

/// The largest body that is read, in bytes.
pub(crate) const BODY_LIMIT: usize = 64 << 10;
/// The largest head of a request that is read, in bytes.
const HEAD_LIMIT: usize = 64 << 10;
/// A connection takes no further requests after this time, and ends soon after.
const LONGEST_CONNECTION: Duration = Duration::from_secs(300);
/// Clients of this version give up at once when they see a 503, but try again after an answer that says why.
const FORGIVING: &str = "/v1alpha1";
const VERSIONS: [&str; 2] = [FORGIVING, "/v1alpha2"];

/// The routes of the endpoint.
pub fn router(state: State) -> Router {
    let mut router = Router::new();
    for version in VERSIONS {
        router = router
            .route(
                &format!("{version}/replicas"),
                get(handlers::list)
                    .post(handlers::add)
                    .delete(handlers::remove),
            )
            .route(
                &format!("{version}/replicas/failed"),
                post(handlers::failed),
            );
    }
    router
        .route("/healthz", get(handlers::healthz))
        .route("/readyz", get(handlers::readyz))
        .route("/metrics", get(handlers::metrics))
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
    let mut response = timeout(state.settings.request_timeout, next.run(request))
        .await
        .unwrap_or_else(|_| Error::Passing("the request took too long".to_owned()).into_response());
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

/// Serves until `shutdown` is ready, and then lets the requests that have begun end.
pub async fn serve(listener: TcpListener, state: State, shutdown: impl Future<Output = ()> + Send) {
    let connections = Arc::new(Semaphore::new(state.settings.max_connections));
    let drain = state.settings.drain;
    let router = router(state.clone());
    let (stop, stopping) = watch::channel(());
    tokio::pin!(shutdown);
    loop {
        let next = async {
            let permit = connections.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, perhaps: they come back as connections end.
                warn!(
                    error = &error as &dyn std::error::Error,
                    "Could not accept a connection"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let served = connection(
            stream,
            peer,
            router.clone(),
            state.clone(),
            stopping.clone(),
        );
        tokio::spawn(async move {
            served.await;
            drop(permit);
        });
    }
    drop((listener, stopping));
    info!("Shutting down, letting requests end");
    stop.send_replace(());
    if timeout(drain, stop.closed()).await.is_err() {
        warn!("Some requests did not end in time");
    }
}

/// Serves one connection until it ends, the server stops, or it is too old: also one whose client reads no answers.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    state: State,
    mut stopping: watch::Receiver<()>,
) {
    // Answers are small, and clients wait for them.
    stream.set_nodelay(true).ok();
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(state.settings.header_timeout)
        .max_buf_size(HEAD_LIMIT);
    let service = router.map_request(move |mut request: Request<_>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(LONGEST_CONNECTION, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            let last = state.settings.request_timeout * 2;
            timeout(last, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(error, "A connection broke off");
    }
}

#[cfg(test)]
mod aggregator_tests;
#[cfg(test)]
mod tests;
