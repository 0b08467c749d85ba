//! Notifies receivers of changes of single jobs, so that a change of one job does not wake those of
//! others.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::key::Key;

/// The senders of the jobs that have receivers.
#[derive(Debug, Default)]
pub(crate) struct JobNotifier(Mutex<HashMap<Key, watch::Sender<()>>>);

impl JobNotifier {
    /// A receiver that is notified of each change of the job after this call.
    pub fn subscribe(&self, job: &Key) -> watch::Receiver<()> {
        let mut senders = self.lock();
        if senders.len() == senders.capacity() {
            senders.retain(|_, sender| !sender.is_closed());
        }
        let entry = senders.entry(job.clone());
        entry.or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Notifies the receivers of a job.
    pub fn notify(&self, job: &Key) {
        let mut senders = self.lock();
        if let Some(sender) = senders.get(job) {
            if sender.is_closed() {
                senders.remove(job);
            } else {
                sender.send_replace(());
            }
        }
    }

    /// Notifies the receivers of all jobs.
    pub fn notify_all(&self) {
        for sender in self.lock().values() {
            sender.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> Key {
        ("rl".to_owned(), name.to_owned())
    }

    #[test]
    fn receiver_is_notified_of_its_job_only() {
        let notifier = JobNotifier::default();
        notifier.notify(&job("a"));
        let [mut first, second] = ["a", "b"].map(|name| notifier.subscribe(&job(name)));
        assert!(!first.has_changed().unwrap(), "it changed before");
        notifier.notify(&job("a"));
        assert!(first.has_changed().unwrap());
        assert!(!second.has_changed().unwrap());
        first.mark_unchanged();
        notifier.notify_all();
        for receiver in [&first, &second] {
            assert!(receiver.has_changed().unwrap());
        }
    }

    #[test]
    fn senders_without_receivers_are_dropped() {
        let notifier = JobNotifier::default();
        for i in 0..1000 {
            drop(notifier.subscribe(&job(&i.to_string())));
        }
        assert!(notifier.lock().len() < 100);
        let receiver = notifier.subscribe(&job("a"));
        drop(receiver);
        notifier.notify(&job("a"));
        assert!(!notifier.lock().contains_key(&job("a")));
    }
}
