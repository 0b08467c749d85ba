use std::sync::{Arc, Mutex};

use di_api::{DIJob, DIJobStatus, Phase};
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::JoinHandle;

use crate::{Namespace, eventually, status};

/// Waits until a job is in this phase, and returns its status.
///
/// # Panics
/// If that takes too long, or the job is gone.
pub async fn wait_for_phase(namespace: &Namespace, job: &str, phase: Phase) -> DIJobStatus {
    let is_there = |status: &DIJobStatus| status.phase == Some(phase);
    eventually(phase.as_str(), || status(namespace, job), is_there).await
}

/// The phases of a job in order, as a watch shows them.
pub struct Phases {
    seen: Arc<Mutex<Vec<Phase>>>,
    watch: JoinHandle<()>,
}

impl Phases {
    /// Watches a job that need not exist yet.
    pub fn watch(namespace: &Namespace, job: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let config = watcher::Config::default().fields(&format!("metadata.name={job}"));
        let mut jobs = watcher(namespace.api::<DIJob>(), config)
            .default_backoff()
            .applied_objects()
            .boxed();
        let noted = seen.clone();
        let watch = tokio::spawn(async move {
            while let Some(event) = jobs.next().await {
                // The watcher recovers by itself.
                let Ok(job) = event else { continue };
                let phase = job.status.and_then(|status| status.phase);
                let mut seen = noted.lock().expect("phases");
                if let Some(phase) = phase
                    && seen.last() != Some(&phase)
                {
                    seen.push(phase);
                }
            }
        });
        Self { seen, watch }
    }

    /// Returns the phases so far, without repetitions.
    ///
    /// # Panics
    /// Never: no thread panics while it has the lock.
    pub fn seen(&self) -> Vec<Phase> {
        self.seen.lock().expect("phases").clone()
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
