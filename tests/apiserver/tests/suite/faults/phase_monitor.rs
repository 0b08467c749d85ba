//! Checks that no job leaves a terminal phase.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use di_api::{DIJob, Phase};
use di_apiserver_tests::{Space, eventually};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{task::JoinSet, time::sleep};

/// Delay before a failed watch is opened again.
const AGAIN: Duration = Duration::from_millis(200);

/// The phases that jobs of a namespace have shown.
pub(crate) struct PhaseMonitor {
    jobs: Api<DIJob>,
    seen: Arc<Mutex<ObservedPhases>>,
    _watching: JoinSet<()>,
}

#[derive(Default)]
struct ObservedPhases {
    /// Last version and phase of each job, by UID.
    jobs: BTreeMap<String, (Option<String>, Option<Phase>)>,
    regressed: Vec<String>,
}

impl ObservedPhases {
    fn record(&mut self, job: &DIJob) {
        let phase = job.status.as_ref().and_then(|status| status.phase);
        let uid = job.uid().unwrap_or_default();
        let earlier = self.jobs.insert(uid, (job.resource_version(), phase));
        let ended = earlier
            .and_then(|(_, phase)| phase)
            .filter(|phase| phase.is_terminal());
        if ended.is_some() && ended != phase {
            let name = job.name_any();
            self.regressed.push(format!("{name}: {ended:?}, {phase:?}"));
        }
    }
}

fn lock(seen: &Mutex<ObservedPhases>) -> MutexGuard<'_, ObservedPhases> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PhaseMonitor {
    /// Starts to watch all jobs of a namespace.
    pub(crate) fn start(space: &Space) -> Self {
        let jobs = space.jobs();
        let seen = Arc::<Mutex<ObservedPhases>>::default();
        let mut watching = JoinSet::new();
        let (api, takes) = (jobs.clone(), seen.clone());
        watching.spawn(async move {
            let jobs = watcher(api, watcher::Config::default());
            let mut jobs = std::pin::pin!(jobs.applied_objects());
            while let Some(job) = jobs.next().await {
                match job {
                    Ok(job) => lock(&takes).record(&job),
                    // The watcher recovers by itself.
                    Err(_) => sleep(AGAIN).await,
                }
            }
        });
        Self {
            jobs,
            seen,
            _watching: watching,
        }
    }

    /// Checks that no job has left a terminal phase so far.
    pub(crate) async fn check(&self) {
        eventually("all phases up to now are seen", async || {
            let jobs = self.jobs.list(&ListParams::default()).await;
            let seen = lock(&self.seen);
            let is_seen = |job: &DIJob| {
                let seen = seen.jobs.get(&job.uid().unwrap_or_default());
                seen.is_some_and(|(version, _)| *version == job.resource_version())
            };
            let unseen = jobs.map_err(|error| error.to_string())?.items;
            let unseen = unseen.into_iter().filter(|job| !is_seen(job));
            let unseen: Vec<_> = unseen.map(|job| job.name_any()).collect();
            if unseen.is_empty() {
                Ok(())
            } else {
                Err(format!("{unseen:?} are behind"))
            }
        })
        .await;
        let regressed = &lock(&self.seen).regressed;
        assert!(
            regressed.is_empty(),
            "terminal phases changed: {regressed:?}"
        );
    }
}
