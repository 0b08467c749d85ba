use std::{
    task::{Context, Poll},
    time::Instant,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use tower::{Layer, Service};

/// Told of every request: method, address, the answer's status and how long it took. Never of headers, which hold tokens.
pub type Trace = fn(&str);

/// Tells of the requests that pass through it.
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
        let asked = format!("{} {}", request.method(), request.uri());
        let began = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let took = began.elapsed().as_millis();
            match &answer {
                Ok(answer) => trace(&format!(
                    "{asked} {} in {took} milliseconds",
                    answer.status()
                )),
                Err(error) => trace(&format!("{asked} {error} in {took} milliseconds")),
            }
            answer
        })
    }
}
