use std::{net::SocketAddr, time::Duration};

use crate::run_error::RunError;

/// Settings and limits of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Whether requests need no authentication.
    pub allow_anonymous: bool,
    /// How long a POST waits for the scheduler's result of new replicas. While the API server rejects
    /// pods of the job, the wait restarts with each pod that appears.
    pub scheduling_wait: Duration,
    /// Maximum number of replicas that one request adds.
    pub max_replicas_per_request: usize,
    /// Maximum number of pods of a job, without its coordinator. A learner group counts with all its
    /// pods, or with one per GPU before its ddp learners are planned.
    pub max_replicas_per_job: usize,
    /// Maximum number of open connections; further ones wait in the accept queue.
    pub max_connections: usize,
    /// Maximum number of open connections per source address; further ones are closed.
    pub max_connections_per_address: usize,
    /// Maximum number of concurrent requests that change one job, including the running one.
    pub max_changes_per_job: usize,
    /// Maximum size of a request body in bytes.
    pub max_body: usize,
    /// Timeout for the head of a request, and for an idle connection.
    pub header_timeout: Duration,
    /// Timeout for the body of a request.
    pub body_timeout: Duration,
    /// Timeout of a request in total.
    pub request_timeout: Duration,
    /// How long a request waits for the first lists of the caches.
    pub sync_wait: Duration,
    /// How long a request waits for pod status that a kubelet may not have reported yet: the IP of a
    /// new pod, and the restart of a coordinator container.
    pub kubelet_wait: Duration,
    /// How long a connection accepts requests. It is closed soon after.
    pub max_connection_age: Duration,
    /// How long a shutdown waits for requests in flight. At least `request_timeout`: otherwise a client
    /// repeats a change that was already written.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([0, 0, 0, 0], 8080)),
            allow_anonymous: false,
            scheduling_wait: Duration::from_secs(2),
            max_replicas_per_request: 1000,
            max_replicas_per_job: 2000,
            max_connections: 1024,
            max_connections_per_address: 128,
            max_changes_per_job: 64,
            max_body: 64 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            sync_wait: Duration::from_secs(3),
            kubelet_wait: Duration::from_secs(5),
            max_connection_age: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// Rejects settings that cannot work.
    ///
    /// # Errors
    /// When a limit is 0, or the waits of a request leave no time to serve it.
    pub(crate) fn check_limits(&self) -> Result<(), RunError> {
        let limits = [
            ("replicas per request", self.max_replicas_per_request),
            ("replicas per job", self.max_replicas_per_job),
            ("connections", self.max_connections),
            ("connections per address", self.max_connections_per_address),
            ("changes per job", self.max_changes_per_job),
            ("bytes of a body", self.max_body),
        ];
        if let Some((limit, _)) = limits.into_iter().find(|(_, most)| *most == 0) {
            return Err(RunError::LimitIsZero(limit));
        }
        let waits = self.sync_wait + self.kubelet_wait + self.scheduling_wait;
        if waits >= self.request_timeout {
            let request = self.request_timeout;
            return Err(RunError::WaitsExceedTimeout { waits, request });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_rejected() {
        let check = |settings: Settings| settings.check_limits().map_err(|error| error.to_string());
        assert_eq!(check(Settings::default()), Ok(()));
        let none = Settings {
            max_connections: 0,
            ..Settings::default()
        };
        assert_eq!(
            check(none),
            Err(
                "the limit of connections is 0, so no request could be served: set it to 1 or more"
                    .to_owned()
            )
        );
        let late = Settings {
            scheduling_wait: Duration::from_secs(22),
            ..Settings::default()
        };
        assert_eq!(
            check(late),
            Err("the waits of a request (cache sync, kubelet, scheduler) are 30s in total, but its timeout is 30s: shorten the waits or raise the timeout".to_owned())
        );
    }
}
