//! Limits how often a watch is opened and how long a request of a watch may take.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response};
use kube::{Client, client::Body};
use tokio::time::{Instant, sleep_until, timeout};
use tower::BoxError;

/// Minimum time between two openings of a watch.
///
/// kube delays the next request only after an error. A load balancer without a backend may accept
/// a watch and close it at once, and would receive requests in a tight loop.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of a response, after which the caller sends the request again.
///
/// kube sets no limit, so a lost response would block the watch. An overloaded API server queues a
/// request for at most 15 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A client for one watch that opens it at most once a second and limits the time of each request.
///
/// A watch that lasted longer than [`MIN_INTERVAL`] is opened again immediately.
pub(crate) fn rate_limited(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let limiter = Arc::new(RateLimiter::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, limiter) = (client.clone(), limiter.clone());
        async move {
            if is_watch(&request) {
                sleep_until(limiter.next_slot(Instant::now())).await;
                // The limit covers the response headers. kube limits the time of the stream.
                with_timeout(client.send(request)).await
            } else {
                with_timeout(read_response(&client, request)).await
            }
        }
    });
    Client::new(service, namespace)
}

/// Sends a request and reads the whole body of its response.
async fn read_response(client: &Client, request: Request<Body>) -> kube::Result<Response<Body>> {
    let (parts, body) = client.send(request).await?.into_parts();
    let text = body.collect_bytes().await?;
    Ok(Response::from_parts(parts, text.into()))
}

async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, BoxError> {
    Ok(timeout(RESPONSE_TIMEOUT, call).await??)
}

fn is_watch(request: &Request<Body>) -> bool {
    let mut query = request.uri().query().unwrap_or_default().split('&');
    query.any(|parameter| parameter == "watch=true")
}

/// Hands out times that are at least [`MIN_INTERVAL`] apart; stores the last one.
#[derive(Default)]
struct RateLimiter(Mutex<Option<Instant>>);

impl RateLimiter {
    fn next_slot(&self, now: Instant) -> Instant {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = last.map_or(now, |last| now.max(last + MIN_INTERVAL));
        *last = Some(slot);
        slot
    }
}

#[cfg(test)]
mod tests {
    use di_fixtures::{ApiServerMock, Reply};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_without_response_times_out() {
        let client = rate_limited(ApiServerMock::client(|_| Reply::Hang));
        for query in ["", "?watch=true"] {
            let request = Request::get(format!("/api/v1/pods{query}"));
            let request = request.body(Body::empty()).unwrap();
            let response = timeout(2 * RESPONSE_TIMEOUT, client.send(request)).await;
            assert!(response.unwrap().is_err(), "{query}");
        }
    }

    #[test]
    fn rate_limiter_spaces_slots_by_min_interval() {
        let limiter = RateLimiter::default();
        let start = Instant::now();
        let slot = |millis| {
            let now = start + Duration::from_millis(millis);
            (limiter.next_slot(now) - start).as_millis()
        };
        let slots = [0, 100, 1500, 60_000, 60_000].map(slot);
        assert_eq!(slots, [0, 1000, 2000, 60_000, 61_000]);
    }
}
