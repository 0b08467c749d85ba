//! Events are published behind the reconciles: they tell people what has happened, and nothing that a job needs waits for them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::Event;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::{
    Error,
    context::{Context, hash},
};

/// How many events are published at the same time.
const LANES: usize = 4;
/// How many wait in each lane; more are lost, and logged. client-go's broadcaster keeps 1000 in all.
const MOST: usize = 1024;

/// An event, and what it is about.
pub(crate) struct News {
    pub event: Event,
    pub about: ObjectReference,
    /// Whether it is to be counted when it comes again.
    pub counted: bool,
}

pub(crate) enum Item {
    News(Box<News>),
    /// All that was put in before is to be published first.
    Flush(oneshot::Sender<()>),
}

/// Where events are put in. Those about one object stay in their order.
pub(crate) struct Outbox {
    lanes: Vec<mpsc::Sender<Item>>,
    /// How many were lost that nobody was told of yet.
    lost: AtomicUsize,
}

impl Outbox {
    /// The other ends are for [`publish`].
    pub fn new() -> (Self, Vec<mpsc::Receiver<Item>>) {
        let (lanes, ends) = (0..LANES).map(|_| mpsc::channel(MOST)).unzip();
        let lost = AtomicUsize::default();
        (Self { lanes, lost }, ends)
    }

    /// Never waits.
    pub fn put(&self, news: News) {
        let lane = usize::try_from(hash(&news.about.uid) % LANES as u64).unwrap_or_default();
        let sent = self.lanes[lane].try_send(Item::News(Box::new(news)));
        if sent.is_err() && self.lost.fetch_add(1, Ordering::Relaxed) + 1 >= MOST {
            self.tell_lost();
        }
    }

    /// They are lost by the rush: one line tells of many.
    fn tell_lost(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            warn!(lost, "Lost events: too many waited to be published already");
        }
    }

    /// Waits until all that was put in so far is published, or put by to be sent again.
    pub async fn flush(&self) {
        let flushes = self.lanes.iter().map(async |lane| {
            let (done, flushed) = oneshot::channel();
            if lane.send(Item::Flush(done)).await.is_ok() {
                flushed.await.ok();
            }
        });
        join_all(flushes).await;
    }
}

/// Publishes what is put into a lane. What cannot be published and may be later is left to `unsent`.
pub(crate) async fn publish(
    context: Arc<Context>,
    mut lane: mpsc::Receiver<Item>,
    unsent: mpsc::Sender<News>,
) {
    while let Some(item) = lane.recv().await {
        if lane.is_empty() {
            // The rush is over.
            context.outbox.tell_lost();
        }
        match item {
            Item::News(news) => {
                if let Err(error) = context.send(&news).await {
                    put_by(*news, &error, &unsent);
                }
            }
            Item::Flush(done) => {
                done.send(()).ok();
            }
        }
    }
}

fn put_by(news: News, error: &Error, unsent: &mpsc::Sender<News>) {
    let reason = news.event.reason.clone();
    let kept = error.may_pass() && unsent.try_send(news).is_ok();
    if !kept && !error.is_moot() {
        warn!(reason, error = error.chain(), "Could not publish an event");
    }
}

#[cfg(test)]
mod tests {
    use di_cache::JobCache;
    use futures::FutureExt;
    use http::{Request, Response};
    use kube::{
        Client,
        client::Body,
        runtime::{events::EventType, reflector::store},
    };
    use prometheus_client::registry::Registry;
    use tower::service_fn;

    use super::*;
    use crate::{Metrics, Settings};

    fn news(uid: usize, reason: &str) -> News {
        News {
            event: Event {
                type_: EventType::Normal,
                reason: reason.to_owned(),
                note: None,
                action: String::new(),
                secondary: None,
            },
            about: ObjectReference {
                uid: Some(uid.to_string()),
                ..ObjectReference::default()
            },
            counted: false,
        }
    }

    fn reasons(lane: &mut mpsc::Receiver<Item>) -> Vec<String> {
        std::iter::from_fn(|| lane.try_recv().ok())
            .filter_map(|item| match item {
                Item::News(news) => Some(news.event.reason),
                Item::Flush(_) => None,
            })
            .collect()
    }

    #[test]
    fn events_about_one_object_stay_in_order_and_others_need_not_wait() {
        let (outbox, mut lanes) = Outbox::new();
        for turn in ["first", "second"] {
            (0..100).for_each(|uid| outbox.put(news(uid, turn)));
        }
        let lanes: Vec<_> = lanes.iter_mut().map(reasons).collect();
        assert!(lanes.iter().all(|lane| !lane.is_empty()));
        for lane in lanes {
            assert!(lane.is_sorted(), "all of the first turn come before");
        }
    }

    #[test]
    fn a_full_lane_holds_nobody_up() {
        let (outbox, mut lanes) = Outbox::new();
        (0..=MOST).for_each(|_| outbox.put(news(0, "same")));
        let kept: usize = lanes.iter_mut().map(|lane| reasons(lane).len()).sum();
        assert_eq!(kept, MOST);
    }

    #[tokio::test]
    async fn of_many_that_are_lost_is_told_at_once() {
        let (outbox, lanes) = Outbox::new();
        let untold = |outbox: &Outbox| outbox.lost.load(Ordering::Relaxed);
        (0..2000).for_each(|_| outbox.put(news(0, "same")));
        assert_eq!(untold(&outbox), 2000 - MOST, "the rush goes on");
        (0..MOST).for_each(|_| outbox.put(news(0, "same")));
        assert_eq!(untold(&outbox), 2000 - MOST, "it goes on for long");

        let taken = service_fn(|_: Request<Body>| async {
            Response::builder().body(Body::from(b"{}".to_vec()))
        });
        let context = Arc::new(Context::new(
            Client::new(taken, "ns"),
            Settings::default(),
            Metrics::new(&mut Registry::default()),
            JobCache::new(store().0),
            Arc::default(),
            Arc::default(),
            outbox,
        ));
        let (unsent, _kept) = mpsc::channel(MOST);
        for lane in lanes {
            tokio::spawn(publish(context.clone(), lane, unsent.clone()));
        }
        context.outbox.flush().await;
        assert_eq!(untold(&context.outbox), 0);
    }

    #[tokio::test]
    async fn a_flush_waits_for_all_lanes() {
        let (outbox, mut lanes) = Outbox::new();
        let flush = outbox.flush();
        tokio::pin!(flush);
        for lane in &mut lanes {
            assert!((&mut flush).now_or_never().is_none());
            let Some(Item::Flush(done)) = lane.recv().await else {
                panic!("no flush in a lane");
            };
            done.send(()).unwrap();
        }
        flush.await;
    }
}
