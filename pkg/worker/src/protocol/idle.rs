//! An idle replica, for tests of the orchestrator.

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
    Error, Result,
    lifecycle::{PauseGate, lifecycle_routes},
    protocol::{http, server::serve_while},
};

/// Maximum time until a replica listens.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Serves `/healthz` and the life-cycle routes without working, until an exit call or `POST
/// /release/<code>`. Returns the exit code; none if `shutdown` came first.
pub async fn run_idle(
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<Option<u8>> {
    let (release, mut code) = watch::channel(None);
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/release/{code}", post(post_release))
        .with_state(Arc::new(release));
    let gate = PauseGate::new_running();
    let router = router.merge(lifecycle_routes(gate.clone()));
    let ended = async {
        tokio::select! {
            code = code.wait_for(Option::is_some) => {
                let code = code.ok().and_then(|code| *code);
                tracing::info!("exiting with code {}", code.unwrap_or(0));
                code
            }
            () = gate.wait_for_exit() => Some(0),
            () = shutdown => None,
        }
    };
    serve_while(listener, router, ended).await
}

async fn post_release(State(release): State<Arc<watch::Sender<Option<u8>>>>, Path(code): Path<u8>) {
    release.send_replace(Some(code));
}

/// Ends the idle replica of this pod, which listens on `port`, with an exit code.
pub async fn release_idle(port: u16, code: u8) -> Result<()> {
    let url = format!("http://127.0.0.1:{port}/release/{code}");
    let client = http::new_client()?;
    let deadline = Instant::now() + STARTUP_TIMEOUT;
    loop {
        match client.post(&url).send().await {
            Err(error) if error.is_connect() && Instant::now() < deadline => {
                sleep(RETRY_INTERVAL).await;
            }
            Err(source) if source.is_connect() => return Err(Error::Unreachable { url, source }),
            // The replica may end before it responds.
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::server::listen;

    #[tokio::test]
    async fn idle_replica_exits_with_released_code() {
        let listener = listen(0).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let idle = tokio::spawn(run_idle(listener, std::future::pending()));
        release_idle(port, 7).await.unwrap();
        assert_eq!(idle.await.unwrap().unwrap(), Some(7));
    }
}
