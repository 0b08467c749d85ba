use std::{
    task::{Context, Poll},
    time::Instant,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use tower::{Layer, Service};

/// Receives a line for every request: method, URL, status and duration.
///
/// Headers are never included, because they contain tokens.
pub type Trace = fn(&str);

/// A tower layer that reports requests to a [`Trace`].
#[derive(Clone, Copy)]
pub(crate) struct TraceLayer(pub(crate) Option<Trace>);

#[derive(Clone)]
pub(crate) struct Traced<S> {
    inner: S,
    trace: Option<Trace>,
}

impl<S> Layer<S> for TraceLayer {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced {
            inner,
            trace: self.0,
        }
    }
}

impl<S, A, B> Service<Request<A>> for Traced<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: std::fmt::Display,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let Some(trace) = self.trace else {
            return Box::pin(self.inner.call(request));
        };
        let request_line = format!("{} {}", request.method(), request.uri());
        let started = Instant::now();
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await;
            let millis = started.elapsed().as_millis();
            match &response {
                Ok(response) => trace(&format!(
                    "{request_line} {} in {millis} milliseconds",
                    response.status()
                )),
                Err(error) => trace(&format!("{request_line} {error} in {millis} milliseconds")),
            }
            response
        })
    }
}
