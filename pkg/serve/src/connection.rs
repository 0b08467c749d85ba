//! One connection.

use std::{convert::Infallible, io, time::Duration};

use axum::{body::Body, extract::Request, response::Response};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt};

use crate::Limits;

/// Maximum size of the head of a request, and of the read buffer of a connection. Heads of the API
/// server have some 300 bytes; a token has about 1,500.
const MAX_HEAD_BYTES: u32 = 16 << 10;
/// Maximum number of concurrent requests of a connection. An API server with more opens another
/// one.
const MAX_STREAMS: u32 = 16;
/// Flow-control window of one request.
const STREAM_WINDOW_BYTES: u32 = 16 << 10;
/// Flow-control window of a connection: the sum of all requests, so that requests that wait for
/// memory do not block others.
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A service that responds to requests, for example an [`axum::Router`].
pub trait HttpService:
    Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> HttpService for S where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Serves one connection until it ends, the server stops, or its maximum age is reached.
pub(crate) async fn serve_connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    service: impl HttpService,
    mut stopping: watch::Receiver<()>,
) {
    // Responses are small, and clients wait for them.
    stream.set_nodelay(true).ok();
    let Some(tls) = tls else {
        return serve_stream(stream, false, limits, service, stopping).await;
    };
    // Boxed, so that the connection frees the state of the handshake afterwards.
    let handshake = Box::pin(timeout(limits.handshake_timeout, async {
        let mut stream = tls.accept(stream).await?;
        // hyper has no timeout for the first bytes of HTTP/2, so wait for the first one here.
        stream.fill_buf().await?;
        io::Result::Ok(Box::new(stream))
    }));
    let accepted = tokio::select! {
        accepted = handshake => accepted,
        _ = stopping.changed() => return,
    };
    if let Ok(Ok(stream)) = accepted {
        // Choose the protocol by ALPN; sniffing would block on a silent client.
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        serve_stream(stream, is_http2, limits, service, stopping).await;
    }
}

async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    limits: Limits,
    service: impl HttpService,
    mut stopping: watch::Receiver<()>,
) {
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    };
    // Without timers hyper has no timeouts for a silent client.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(MAX_HEAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(limits.handshake_timeout)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let service = service.map_request(|request: Request<_>| request.map(Body::new));
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut served = Box::pin(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(limits.max_age, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            timeout(limits.close_timeout, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "A connection ended with an error");
    }
}
