//! State of a job that the reconciler keeps in memory between reconciles.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;

use crate::{ReconcileError, Step, debounce::WriteSchedule, deferred_creates::DeferredCreates};

/// In-memory state of one job. If a restart loses it, reconciles only become slower.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobState {
    /// UID of the job. A recreated job of the same name starts with an empty state.
    pub uid: Option<String>,
    /// Error of the last reconcile.
    pub last_error: Option<ReconcileError>,
    pub deferred_creates: Arc<DeferredCreates>,
    pub write_schedule: WriteSchedule,
    /// True if the API server has dropped the membership from the last status.
    pub drops_membership: bool,
    /// Time since which a pod waits with a reason, by pod UID. A restart loses it: rules that match
    /// waiting containers then apply up to a minute later.
    pub waiting_since: Arc<HashMap<String, Timestamp>>,
    /// The step whose status write got no response. See `status_writer.rs`.
    pub unacknowledged: Option<Arc<Step>>,
    /// True if no retry can help, because the job or its namespace is being deleted.
    pub terminal: bool,
}

impl JobState {
    /// Returns true if no create is deferred and no status write is pending.
    pub fn is_settled(&self) -> bool {
        self.deferred_creates.is_empty() && !self.write_schedule.is_pending()
    }
}
