//! The HTTP server of collectors and learners.

use std::{
    future::{Future, IntoFuture},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    Error, Result, chain,
    lifecycle::{
        LaunchedWorker, PauseGate, Worker, WorkerControl, launch_worker, lifecycle_routes,
    },
    protocol::{
        tasks::{Queue, TaskLoop, TaskWorker},
        wire::{Failure, TAKES_NO_TASK, is_bad_task_status},
    },
};

/// Maximum timeout of a task.
pub const TASK_LIMIT: Duration = Duration::from_secs(3600);
/// Maximum time to finish responses after the worker has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

struct Shared<W: TaskWorker> {
    queue: Arc<Queue<W>>,
    control: WorkerControl,
}

/// Listens on all addresses.
pub async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("0.0.0.0", port))
        .await
        .map_err(|source| Error::Listen { port, source })
}

/// Launches and serves a worker until it ends or `shutdown` is ready. A task that still runs is
/// abandoned: the coordinator sends it to another replica.
pub async fn serve<W: TaskWorker>(
    listener: TcpListener,
    worker: W,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let queue = Arc::new(Queue::new());
    let config = worker.current_config();
    let life = launch_worker(TaskLoop::start(worker, queue.clone())?, config)?;
    let shared = Shared {
        queue,
        control: life.control.clone(),
    };
    let router = Router::new()
        .route("/task", post(post_task::<W>))
        .with_state(Arc::new(shared))
        .merge(health_route());
    serve_worker(listener, life, router, shutdown).await
}

/// Launches a worker that finds its own work, and serves its life-cycle routes until it ends or
/// `shutdown` is ready.
pub(crate) async fn serve_handles<W: Worker>(
    listener: TcpListener,
    worker: W,
    config: W::Config,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    serve_worker(
        listener,
        launch_worker(worker, config)?,
        health_route(),
        shutdown,
    )
    .await
}

/// Runs `work` and serves the life-cycle routes of its gate if a port is set.
pub async fn run_with_lifecycle<T>(
    gate: &PauseGate,
    port: Option<u16>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let work = async {
        let done = work.await;
        gate.mark_ended(done.as_ref().err().map(|error| chain(error)));
        done
    };
    let Some(port) = port else {
        return work.await;
    };
    let listener = listen(port).await?;
    let address = listener.local_addr();
    let address = address.map_err(|source| Error::Listen { port, source })?;
    tracing::info!("serving the life cycle on port {}", address.port());
    let router = health_route().merge(lifecycle_routes(gate.clone()));
    serve_while(listener, router, work).await.flatten()
}

async fn serve_worker(
    listener: TcpListener,
    life: LaunchedWorker,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let LaunchedWorker { control, ended } = life;
    let router = router.merge(lifecycle_routes(control));
    // The thread always sends its result.
    let result = async { ended.await.unwrap_or(Ok(())) };
    tokio::select! {
        served = serve_while(listener, router, result) => served.flatten(),
        () = shutdown => Ok(()),
    }
}

/// Serves until `work` is done; pending requests are answered.
pub(crate) async fn serve_while<T>(
    listener: TcpListener,
    router: Router,
    work: impl Future<Output = T>,
) -> Result<T> {
    let (end, ended) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        ended.await.ok();
    });
    let mut server = std::pin::pin!(server.into_future());
    let done = tokio::select! {
        ended = &mut server => {
            let by_itself = || std::io::Error::other("the server ended unexpectedly");
            return Err(Error::Serve(ended.err().unwrap_or_else(by_itself)));
        }
        done = work => done,
    };
    drop(end);
    tokio::time::timeout(DRAIN_TIMEOUT, server).await.ok();
    Ok(done)
}

/// The route `/healthz`.
pub(crate) fn health_route() -> Router {
    Router::new().route("/healthz", get(async || "ok"))
}

async fn post_task<W: TaskWorker>(
    State(shared): State<Arc<Shared<W>>>,
    Json(task): Json<W::Task>,
) -> Response {
    let outcome = match shared.queue.push_task(task) {
        Ok(outcome) => {
            shared.control.poll_now();
            outcome.await.unwrap_or(Err(Error::TaskLeft))
        }
        Err(error) => Err(error),
    };
    task_response(outcome)
}

/// The response to a task.
pub(crate) fn task_response<R: Serialize>(outcome: Result<R>) -> Response {
    match outcome {
        Ok(report) => Json(report).into_response(),
        Err(error) => {
            let failure = Failure {
                error: chain(&error),
            };
            (error_status(&error), Json(failure)).into_response()
        }
    }
}

fn error_status(error: &Error) -> StatusCode {
    match error {
        Error::Paused | Error::GivenBack { .. } | Error::RankAbsent(_) => {
            StatusCode::from_u16(TAKES_NO_TASK).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
        }
        Error::BadTask(_) | Error::Diverged => StatusCode::BAD_REQUEST,
        Error::TaskFailed { status, .. } if is_bad_task_status(*status) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
