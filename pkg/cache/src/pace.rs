//! The pace at which a watch is opened again, and how long its answer is waited for.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Request, Response};
use kube::{Client, client::Body};
use tokio::time::{Instant, sleep_until, timeout};
use tower::BoxError;

/// From one opening of a watch to the next. kube waits after errors only: what answers well and closes at once, as a load balancer without a
/// server behind it may, would be asked as fast as it answers.
const BETWEEN: Duration = Duration::from_secs(1);

/// What is not answered by then is asked again: kube waits for ever, where the answer may have got lost on its way. A server that has much to do
/// lets a request wait for 15 s at most.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// A client for one watch, which is opened once a second at most. One that lasted longer is opened again at once. Neither it nor its lists are
/// waited for without end.
pub(crate) fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let pace = Arc::new(Pace::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, pace) = (client.clone(), pace.clone());
        async move {
            if is_watch(&request) {
                sleep_until(pace.turn(Instant::now())).await;
                // kube looks after what follows.
                in_time(client.send(request)).await
            } else {
                in_time(whole(&client, request)).await
            }
        }
    });
    Client::new(service, namespace)
}

/// An answer, once all of it has come.
async fn whole(client: &Client, request: Request<Body>) -> kube::Result<Response<Body>> {
    let (parts, body) = client.send(request).await?.into_parts();
    let text = body.collect_bytes().await?;
    Ok(Response::from_parts(parts, text.into()))
}

async fn in_time<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, BoxError> {
    Ok(timeout(ANSWERED_WITHIN, call).await??)
}

fn is_watch(request: &Request<Body>) -> bool {
    let mut query = request.uri().query().unwrap_or_default().split('&');
    query.any(|parameter| parameter == "watch=true")
}

/// When it was or will be opened last.
#[derive(Default)]
struct Pace(Mutex<Option<Instant>>);

impl Pace {
    fn turn(&self, now: Instant) -> Instant {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = last.map_or(now, |last| now.max(last + BETWEEN));
        *last = Some(turn);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_answered_is_given_up() {
        let silent = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, BoxError>>()
        });
        let client = paced(Client::new(silent, "default"));
        for query in ["", "?watch=true"] {
            let request = Request::get(format!("/api/v1/pods{query}"));
            let request = request.body(Body::empty()).unwrap();
            let answer = timeout(2 * ANSWERED_WITHIN, client.send(request)).await;
            assert!(answer.unwrap().is_err(), "{query}");
        }
    }

    #[test]
    fn what_lasted_is_opened_again_at_once_and_nothing_twice_within_a_second() {
        let pace = Pace::default();
        let start = Instant::now();
        let turn = |millis| {
            let at = start + Duration::from_millis(millis);
            (pace.turn(at) - start).as_millis()
        };
        let turns = [0, 100, 1500, 60_000, 60_000].map(turn);
        assert_eq!(turns, [0, 1000, 2000, 60_000, 61_000]);
    }
}
