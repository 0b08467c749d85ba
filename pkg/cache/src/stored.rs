use futures::{Stream, StreamExt, stream};
use kube::{
    Resource,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher::{self, Event},
    },
};

use crate::WatchedJob;

/// The jobs that `events` are about, each once `store` has it, for a queue that looks there. kube's `touched_objects` hands out those of a list
/// page by page, and the store has none of them before the last: while that is fetched, a queue takes a job that came since for one that is gone,
/// and nobody looks at it ever again. After a list those are handed out, too, that it does not have any more: nothing else tells that they are gone.
pub fn stored_jobs<J>(
    events: impl Stream<Item = watcher::Result<Event<WatchedJob<J>>>>,
    store: Store<WatchedJob<J>>,
) -> impl Stream<Item = watcher::Result<WatchedJob<J>>>
where
    J: Resource<DynamicType = ()> + Clone + 'static,
{
    let mut before = Vec::new();
    events.flat_map(move |event| {
        let (one, all) = match event {
            Ok(Event::Apply(job) | Event::Delete(job)) => (Some(Ok(job)), Vec::new()),
            Ok(Event::Init) => {
                before = store.state();
                (None, Vec::new())
            }
            Ok(Event::InitApply(_)) => (None, Vec::new()),
            Ok(Event::InitDone) => {
                let mut all = std::mem::take(&mut before);
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
    use futures::{FutureExt, channel::mpsc};
    use kube::{ResourceExt, runtime::reflector};
    use serde_json::json;

    use super::*;

    fn job(name: &str) -> WatchedJob<DIJob> {
        let job = json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"coordinator": {"template": {}}},
        });
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn a_job_is_handed_out_when_the_store_has_it_or_has_it_no_more() {
        let (reader, writer) = reflector::store();
        let (shown, events) = mpsc::unbounded();
        let events = reflector(writer, events);
        let mut jobs = pin!(stored_jobs(events, reader.clone()));
        let mut handed_out = |event| {
            shown.unbounded_send(Ok(event)).unwrap();
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
        let gone = |name: &str| (name.to_owned(), false);
        assert_eq!(handed_out(Event::Init), []);
        assert_eq!(handed_out(Event::InitApply(job("a"))), []);
        assert_eq!(handed_out(Event::InitDone), [stored("a")]);
        assert_eq!(handed_out(Event::Apply(job("b"))), [stored("b")]);

        // Listed anew, with one that came meanwhile on a page before the last, and without one that went.
        assert_eq!(handed_out(Event::Init), []);
        assert_eq!(handed_out(Event::InitApply(job("new"))), []);
        assert_eq!(handed_out(Event::InitApply(job("b"))), []);
        let all = [gone("a"), stored("b"), stored("new")];
        assert_eq!(handed_out(Event::InitDone), all);
        assert_eq!(handed_out(Event::Delete(job("b"))), [gone("b")]);
    }
}
