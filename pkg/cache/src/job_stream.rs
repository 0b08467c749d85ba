use std::fmt::Debug;

use futures::{Stream, StreamExt, stream};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use crate::{
    feed::watch_config, jobs::WatchedJob, rate_limit::rate_limited, watch_backoff::WatchBackoff,
};

/// Watches jobs, whole or as views, into the store of `writer`.
///
/// The stream is lazy: poll it, or the store stays empty.
pub fn job_stream<J>(
    client: Client,
    writer: Writer<WatchedJob<J>>,
) -> impl Stream<Item = watcher::Result<Event<WatchedJob<J>>>> + Send + 'static
where
    J: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<WatchedJob<J>> = Api::all(rate_limited(client));
    let stream = watcher(api, watch_config())
        .backoff(WatchBackoff::default())
        .modify(|job| job.managed_fields_mut().clear());
    reflector::reflector(writer, stream)
}

/// The jobs of `events`, each once `store` has it, as input of a work queue that reads the store.
///
/// kube's `touched_objects` returns the jobs of a list page by page, but the store has none of them
/// before the last page. A queue would then take a new job for a deleted one and never reconcile
/// it. After a list, this stream also returns the jobs that the store no longer has, because no
/// other event reports their deletion.
pub fn stored_jobs<J>(
    events: impl Stream<Item = watcher::Result<Event<WatchedJob<J>>>>,
    store: Store<WatchedJob<J>>,
) -> impl Stream<Item = watcher::Result<WatchedJob<J>>>
where
    J: Resource<DynamicType = ()> + Clone + 'static,
{
    let mut previous = Vec::new();
    events.flat_map(move |event| {
        let (one, all) = match event {
            Ok(Event::Apply(job) | Event::Delete(job)) => (Some(Ok(job)), Vec::new()),
            Ok(Event::Init) => {
                previous = store.state();
                (None, Vec::new())
            }
            Ok(Event::InitApply(_)) => (None, Vec::new()),
            Ok(Event::InitDone) => {
                let mut all = std::mem::take(&mut previous);
                all.retain(|job| store.get(&ObjectRef::from_obj(&**job)).is_none());
                all.extend(store.state());
                (None, all)
            }
            Err(error) => (Some(Err(error)), Vec::new()),
        };
        let all = stream::iter(all).map(|job| Ok(WatchedJob::clone(&job)));
        stream::iter(one).chain(all)
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use di_api::DIJob;
    use di_fixtures::Job;
    use futures::{FutureExt, channel::mpsc};
    use kube::runtime::reflector;

    use super::*;

    fn named_job(name: &str) -> WatchedJob<DIJob> {
        Job::test().named(name).build()
    }

    #[test]
    fn job_is_streamed_once_stored_or_removed() {
        let (reader, writer) = reflector::store();
        let (sender, events) = mpsc::unbounded();
        let events = reflector(writer, events);
        let mut jobs = pin!(stored_jobs(events, reader.clone()));
        let mut streamed_jobs = |event| {
            sender.unbounded_send(Ok(event)).unwrap();
            let mut names = Vec::new();
            while let Some(Some(Ok(job))) = jobs.next().now_or_never() {
                let is_stored = reader
                    .state()
                    .iter()
                    .any(|s| s.name_any() == job.name_any());
                names.push((job.name_any(), is_stored));
            }
            names.sort();
            names
        };
        let stored = |name: &str| (name.to_owned(), true);
        let removed = |name: &str| (name.to_owned(), false);
        assert_eq!(streamed_jobs(Event::Init), []);
        assert_eq!(streamed_jobs(Event::InitApply(named_job("a"))), []);
        assert_eq!(streamed_jobs(Event::InitDone), [stored("a")]);
        assert_eq!(streamed_jobs(Event::Apply(named_job("b"))), [stored("b")]);

        // A second list has a new job on its first page and misses a deleted job.
        assert_eq!(streamed_jobs(Event::Init), []);
        assert_eq!(streamed_jobs(Event::InitApply(named_job("new"))), []);
        assert_eq!(streamed_jobs(Event::InitApply(named_job("b"))), []);
        let all = [removed("a"), stored("b"), stored("new")];
        assert_eq!(streamed_jobs(Event::InitDone), all);
        assert_eq!(streamed_jobs(Event::Delete(named_job("b"))), [removed("b")]);
    }
}
