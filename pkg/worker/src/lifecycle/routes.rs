use std::future::Future;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

use crate::{
    Error, Result, chain,
    lifecycle::{
        report::Report,
        status::{Call, CallError},
    },
    protocol::wire::Envelope,
};

/// The handler behind the life-cycle routes.
pub trait LifecycleHandles: Clone + Send + Sync + 'static {
    /// The current report; returns at once.
    fn current_report(&self) -> Report;

    /// Sends a call to the worker and waits until it is applied. `config` is used by `configure`
    /// only.
    fn handle_call(&self, call: Call, config: Value)
    -> impl Future<Output = Result<Report>> + Send;
}

/// The life-cycle routes: `GET /lifecycle` and `POST /lifecycle/CALL`. Each response is an
/// [`Envelope`] with a [`Report`].
pub fn lifecycle_routes<H: LifecycleHandles>(handles: H) -> Router {
    Router::new()
        .route("/lifecycle", get(get_report::<H>))
        .route("/lifecycle/{call}", post(post_call::<H>))
        .with_state(handles)
}

async fn get_report<H: LifecycleHandles>(State(handles): State<H>) -> Json<Envelope> {
    Json(Envelope::new_success(json!(handles.current_report())))
}

async fn post_call<H: LifecycleHandles>(
    State(handles): State<H>,
    Path(call): Path<String>,
    body: Bytes,
) -> Response {
    let done = match parse_call(&call, &body) {
        Ok((call, config)) => handles.handle_call(call, config).await,
        Err(error) => Err(error),
    };
    let error = match done {
        Ok(report) => return Json(Envelope::new_success(json!(report))).into_response(),
        Err(error) => error,
    };
    let status = match error {
        Error::Call(CallError::Unknown(_)) => StatusCode::NOT_FOUND,
        Error::BadConfig(_) => StatusCode::BAD_REQUEST,
        Error::Call(_) | Error::NotReady(_) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let envelope = Envelope::new_failure(chain(&error), json!(handles.current_report()));
    (status, Json(envelope)).into_response()
}

fn parse_call(call: &str, body: &[u8]) -> Result<(Call, Value)> {
    let call = call.parse()?;
    let config = match body {
        // An empty body configures the defaults.
        [] => json!({}),
        body => {
            serde_json::from_slice(body).map_err(|error| Error::BadConfig(error.to_string()))?
        }
    };
    Ok((call, config))
}

#[cfg(test)]
mod tests {
    use reqwest::Method;

    use super::*;
    use crate::lifecycle::{
        pause_gate::PauseGate, report::PollResult, status::Status, worker::Worker,
        worker_loop::launch_worker,
    };

    struct Idle;

    impl Worker for Idle {
        type Config = std::collections::BTreeMap<String, u64>;
        const NAME: &'static str = "idle";

        fn configure(&mut self, _: Self::Config) -> Result<()> {
            Ok(())
        }

        fn poll(&mut self) -> Result<PollResult> {
            Ok(PollResult::NOTHING)
        }
    }

    async fn serve_router(router: Router) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        url
    }

    /// Sends a request; returns the HTTP code, `success`, the message and the status.
    async fn send_request(
        method: Method,
        url: String,
        body: &'static str,
    ) -> (u16, bool, String, Status) {
        let request = crate::protocol::http::new_client()
            .unwrap()
            .request(method, url)
            .body(body);
        let response = request.send().await.unwrap();
        let code = response.status();
        let envelope: Envelope = response.json().await.unwrap();
        assert_eq!(envelope.success, code == StatusCode::OK);
        assert_eq!(envelope.code, i64::from(!envelope.success));
        let report: Report = serde_json::from_value(envelope.data).unwrap();
        (
            code.as_u16(),
            envelope.success,
            envelope.message,
            report.status,
        )
    }

    #[tokio::test]
    async fn lifecycle_calls_work_over_http() {
        let life = launch_worker(Idle, std::collections::BTreeMap::default()).unwrap();
        let url = serve_router(lifecycle_routes(life.control.clone())).await;
        let call = async |name: &str, body| {
            send_request(Method::POST, format!("{url}/lifecycle/{name}"), body).await
        };
        let status_now = async || {
            send_request(Method::GET, format!("{url}/lifecycle"), "")
                .await
                .3
        };
        assert_eq!(call("start", "").await.3, Status::Running);
        assert_eq!(status_now().await, Status::Running);
        let (code, _, message, status) = call("configure", "{}").await;
        assert_eq!((code, status), (409, Status::Running));
        assert_eq!(
            message,
            "cannot configure while it is running: pause it first"
        );
        assert_eq!(call("pause", "").await.3, Status::Paused);
        assert_eq!(call("pause", "").await.3, Status::Paused);
        assert_eq!(status_now().await, Status::Paused);
        for unusable in ["{", r#"{"a": "b"}"#] {
            let (code, _, message, status) = call("configure", unusable).await;
            assert_eq!((code, status), (400, Status::Paused), "{message}");
        }
        assert_eq!(call("configure", r#"{"a": 1}"#).await.3, Status::Configured);
        assert_eq!(call("configure", "").await.3, Status::Configured);
        let (code, _, message, _) = call("stop", "").await;
        assert_eq!(
            (code, message.as_str()),
            (
                404,
                "unknown life-cycle call \"stop\": use configure, start, pause or exit"
            )
        );
        assert_eq!(call("start", "").await.3, Status::Running);
        assert_eq!(call("exit", "").await.3, Status::Exiting);
        life.ended.await.unwrap().unwrap();
        assert_eq!(status_now().await, Status::Completed);
        let (code, _, _, status) = call("start", "").await;
        assert_eq!((code, status), (409, Status::Completed));
    }

    #[tokio::test]
    async fn pause_gate_serves_lifecycle_routes() {
        let gate = PauseGate::new_running();
        let url = serve_router(lifecycle_routes(gate.clone())).await;
        let call = async |name: &str| {
            send_request(Method::POST, format!("{url}/lifecycle/{name}"), "").await
        };
        assert_eq!(call("pause").await.3, Status::Paused);
        let (code, _, message, _) = call("configure").await;
        assert_eq!(code, 400, "{message}");
        assert_eq!(call("start").await.3, Status::Running);
        assert_eq!(call("exit").await.3, Status::Exiting);
        gate.wait_for_exit().await;
    }
}
