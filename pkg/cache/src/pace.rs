//! The pace at which a watch is opened again.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::Request;
use kube::{Client, client::Body};
use tokio::time::{Instant, sleep_until};

/// From one opening of a watch to the next. kube waits after errors only: what answers well and closes at once, as a load balancer without a
/// server behind it may, would be asked as fast as it answers.
const BETWEEN: Duration = Duration::from_secs(1);

/// A client for one watch, which is opened once a second at most. One that lasted longer is opened again at once.
pub(crate) fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let pace = Arc::new(Pace::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, pace) = (client.clone(), pace.clone());
        async move {
            if is_watch(&request) {
                sleep_until(pace.turn(Instant::now())).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
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
