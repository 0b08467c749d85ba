//! State of a job that the reconciler keeps in memory between reconciles.

use std::{collections::HashSet, sync::Arc, time::Instant};

use di_api::DIJobStatus;

use crate::{EventRecord, ReconcileError, debounce::Debounce};

/// In-memory state of one job. If a restart loses it, reconciles only become slower.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobState {
    /// UID of the job. A recreated job of the same name starts with an empty state.
    pub uid: Option<String>,
    /// Error of the last reconcile.
    pub last_error: Option<ReconcileError>,
    pub deferred_creates: Arc<DeferredCreates>,
    /// Debounced status write, if one is pending.
    pub pending_write: Option<Debounce>,
    /// Time of the last status write.
    pub last_write: Option<Instant>,
    /// Status and events of a write that got no response. See [`crate::status_writer`].
    pub unacknowledged: Option<Arc<(DIJobStatus, Vec<EventRecord>)>>,
    /// True if no retry can help, because the job or its namespace is being deleted.
    pub terminal: bool,
}

impl JobState {
    /// Returns true if no create is deferred and no status write is pending.
    pub fn is_settled(&self) -> bool {
        self.deferred_creates.objects.is_empty() && self.pending_write.is_none()
    }
}

/// Failed or skipped creates, not sent again until the backoff of the job is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeferredCreates {
    /// Resource and name of each object.
    pub objects: HashSet<(&'static str, String)>,
    /// Generation of the job at the creates. A newer spec may have fixed the error.
    pub generation: Option<i64>,
}
