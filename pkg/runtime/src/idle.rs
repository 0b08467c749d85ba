//! A replica that does nothing until it is told how to end: what tests of the orchestrator run.

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    routing::{get, post},
};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    Error, Result, http,
    lifecycle::{PauseGate, lifecycle_routes},
    server::serve_while,
};

/// How long to wait for a replica that runs, and does not listen yet.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Answers `/healthz` and the handles of a life cycle, in which nothing is done, until it is told to exit or `POST /release/<code>` tells it
/// the exit code to end with; none when `shutdown` came first.
pub async fn run_idle(listener: TcpListener, shutdown: impl Future<Output = ()>) -> Result<Option<u8>> {
    let (told, mut code) = watch::channel(None);
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/release/{code}", post(post_release))
        .with_state(Arc::new(told));
    let gate = PauseGate::new_running();
    let router = router.merge(lifecycle_routes(gate.clone()));
    let ended = async {
        tokio::select! {
            code = code.wait_for(Option::is_some) => {
                let code = code.ok().and_then(|code| *code);
                tracing::info!("told to end with {}", code.unwrap_or(0));
                code
            }
            () = gate.wait_for_exit() => Some(0),
            () = shutdown => None,
        }
    };
    serve_while(listener, router, ended).await
}

async fn post_release(State(told): State<Arc<watch::Sender<Option<u8>>>>, Path(code): Path<u8>) {
    told.send_replace(Some(code));
}

/// Tells the replica of this pod that listens on `port` to end with `code`.
pub async fn release_idle(port: u16, code: u8) -> Result<()> {
    let url = format!("http://127.0.0.1:{port}/release/{code}");
    let client = http::new_client()?;
    let deadline = Instant::now() + LISTENS_WITHIN;
    loop {
        match client.post(&url).send().await {
            Err(error) if error.is_connect() && Instant::now() < deadline => {
                sleep(LOOK_EVERY).await;
            }
            Err(source) if source.is_connect() => return Err(Error::Unreachable { url, source }),
            // It may end before it has answered.
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::listen;

    #[tokio::test]
    async fn idle_replica_exits_with_released_code() {
        let listener = listen(0).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let held = tokio::spawn(run_idle(listener, std::future::pending()));
        release_idle(port, 7).await.unwrap();
        assert_eq!(held.await.unwrap().unwrap(), Some(7));
    }
}
