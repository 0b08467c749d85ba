//! The HTTP server that collectors and learners share.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpListener, sync::Mutex};

use crate::{
    Error, Result, chain,
    wire::{Failure, Role},
};

/// Tasks hold paths, no data.
const BODY_LIMIT: usize = 64 << 10;
/// Longest time from a request's head to its answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(180);

/// What does the tasks of a role.
pub trait Worker: Send + Sync + 'static {
    /// What comes in.
    type Task: DeserializeOwned + Send + 'static;
    /// What goes out.
    type Report: Serialize + Send + 'static;

    /// The role.
    const ROLE: Role;

    /// Name of the pod.
    fn pod(&self) -> &str;

    /// Number of this replica within its type.
    fn replica_index(&self) -> u64;

    /// Does a task; `fallback_seed` is for tasks that bring none. May take long: runs beside the
    /// server.
    fn work(&self, task: Self::Task, fallback_seed: u64) -> Result<Self::Report>;
}

/// What `/status` tells.
#[derive(Clone, Debug, Serialize)]
struct Status {
    role: Role,
    pod: String,
    replica_index: u64,
    busy: bool,
    tasks_done: u64,
    tasks_failed: u64,
}

struct Shared<W> {
    worker: W,
    /// Tasks are done one after another: more at once would only slow each other down.
    turn: Mutex<()>,
    done: AtomicU64,
    failed: AtomicU64,
}

/// Listens on all addresses.
pub async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("0.0.0.0", port))
        .await
        .map_err(|source| Error::Listen { port, source })
}

/// Serves a worker until `shutdown` is ready. A task that is still running is left behind: the
/// coordinator gives it to another replica.
pub async fn serve<W: Worker>(
    listener: TcpListener,
    worker: W,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let server = axum::serve(listener, router(worker));
    tokio::select! {
        ended = server => ended.map_err(Error::Serve),
        () = shutdown => Ok(()),
    }
}

/// The routes of a worker.
pub fn router<W: Worker>(worker: W) -> Router {
    let shared = Shared {
        worker,
        turn: Mutex::new(()),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    };
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/status", get(status::<W>))
        .route("/task", post(task::<W>))
        .layer(from_fn(limit))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(Arc::new(shared))
}

async fn limit(request: Request, next: Next) -> Response {
    tokio::time::timeout(REQUEST_LIMIT, next.run(request))
        .await
        .unwrap_or_else(|_| failure(StatusCode::GATEWAY_TIMEOUT, "the request took too long"))
}

async fn status<W: Worker>(State(shared): State<Arc<Shared<W>>>) -> Response {
    let status = Status {
        role: W::ROLE,
        pod: shared.worker.pod().to_owned(),
        replica_index: shared.worker.replica_index(),
        busy: shared.turn.try_lock().is_err(),
        tasks_done: shared.done.load(Relaxed),
        tasks_failed: shared.failed.load(Relaxed),
    };
    Json(status).into_response()
}

async fn task<W: Worker>(
    State(shared): State<Arc<Shared<W>>>,
    Json(task): Json<W::Task>,
) -> Response {
    let _turn = shared.turn.lock().await;
    let count = shared.done.load(Relaxed) + shared.failed.load(Relaxed);
    let fallback_seed = mix(shared.worker.replica_index(), count);
    let working = shared.clone();
    let result =
        tokio::task::spawn_blocking(move || working.worker.work(task, fallback_seed)).await;
    match result.map_err(Error::TaskLost).flatten() {
        Ok(report) => {
            shared.done.fetch_add(1, Relaxed);
            Json(report).into_response()
        }
        Err(error) => {
            shared.failed.fetch_add(1, Relaxed);
            let error_line = chain(&error);
            tracing::error!("task failed: {error_line}");
            let asked_wrongly = matches!(error, Error::BadTask(_) | Error::OutsideStorage { .. });
            let status = if asked_wrongly {
                StatusCode::BAD_REQUEST
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            failure(status, error_line)
        }
    }
}

fn failure(status: StatusCode, error: impl Into<String>) -> Response {
    (
        status,
        Json(Failure {
            error: error.into(),
        }),
    )
        .into_response()
}

/// A seed from two numbers, by the finaliser of SplitMix64, so that neighbours have nothing in
/// common.
pub(crate) const fn mix(left: u64, right: u64) -> u64 {
    let mut value = left
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(right)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
