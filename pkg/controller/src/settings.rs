use std::time::Duration;

use di_cache::DISCOVERY_INTERVAL;
use di_plan::BuildSettings;
use jiff::Timestamp;

use crate::lease::LeaderToken;

/// Settings of the reconciler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Settings that are built into pods, such as the address of the replica endpoint.
    pub build: BuildSettings,
    /// Maximum number of jobs that are reconciled at the same time.
    pub concurrency: u16,
    /// Maximum number of concurrent writes to the API server, over all jobs.
    pub writes_in_flight: usize,
    /// Timeout of one request to the API server.
    pub call_timeout: Duration,
    /// Time between two looks for the API of Kueue, or of the gang scheduler, while it is not served
    /// or must not be used.
    pub discovery_interval: Duration,
    /// Instance name in published events, usually the name of the pod.
    pub identity: String,
    /// Token that delays writes without the lease. `None` without leader election.
    pub leader_token: Option<LeaderToken>,
    /// Returns the current time.
    pub clock: fn() -> Timestamp,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            build: BuildSettings::default(),
            concurrency: 16,
            writes_in_flight: 32,
            call_timeout: Duration::from_secs(10),
            discovery_interval: DISCOVERY_INTERVAL,
            identity: "di-orchestrator".to_owned(),
            leader_token: None,
            clock: Timestamp::now,
        }
    }
}
