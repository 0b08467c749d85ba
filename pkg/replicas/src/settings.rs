use std::{net::SocketAddr, time::Duration};

use crate::RunError;

/// How the endpoint serves, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address that it listens on.
    pub address: SocketAddr,
    /// Whether everybody may call, known or not.
    pub allow_anonymous: bool,
    /// How long an answer waits for the scheduling verdicts of the replicas just planned. While pods of the job are refused, this begins anew with
    /// each of theirs that comes.
    pub create_wait: Duration,
    /// The most replicas that one request may add.
    pub max_replicas_per_request: usize,
    /// The most pods that a job may have beside its coordinator. Learners of several GPUs count with all of theirs; until it is known how many these
    /// are, as if each GPU were to have its own.
    pub max_replicas_per_job: usize,
    /// The most connections at a time; further ones wait to be accepted.
    pub max_connections: usize,
    /// The most connections of one source address at a time; further ones are closed at once.
    pub max_connections_per_address: usize,
    /// The most requests at a time that change one job, the one that is being served included.
    pub max_changes_per_job: usize,
    /// The largest body that is read, in bytes.
    pub max_body: usize,
    /// How long the head of a request may take to come; a connection idle for so long is closed too.
    pub header_timeout: Duration,
    /// How long the body of a request may take to come.
    pub body_timeout: Duration,
    /// How long a request may take in all.
    pub request_timeout: Duration,
    /// How long a request waits for the caches' first lists.
    pub sync_wait: Duration,
    /// How long a request waits for what a kubelet may not have told yet: which pod has its address, and that a coordinator which asks for what it
    /// has was restarted in place.
    pub kubelet_wait: Duration,
    /// How long a connection takes requests. It ends soon after, also where its client reads no answers.
    pub longest_connection: Duration,
    /// How long requests may still take once the shutdown has begun: as long as any, or one that was written may be repeated as another.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([0, 0, 0, 0], 8080)),
            allow_anonymous: false,
            create_wait: Duration::from_secs(2),
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
            longest_connection: Duration::from_secs(300),
            drain: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// What cannot be meant.
    ///
    /// # Errors
    /// When a limit lets nothing through, or the waits of a request leave no time to serve it.
    pub(crate) fn check(&self) -> Result<(), RunError> {
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
        let waits = self.sync_wait + self.kubelet_wait + self.create_wait;
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
    fn what_would_serve_nobody_is_refused_with_its_reason() {
        let told = |settings: Settings| settings.check().map_err(|error| error.to_string());
        assert_eq!(told(Settings::default()), Ok(()));
        let none = Settings {
            max_connections: 0,
            ..Settings::default()
        };
        assert_eq!(
            told(none),
            Err("the limit of connections is 0, so that nothing would be served".to_owned())
        );
        let late = Settings {
            create_wait: Duration::from_secs(22),
            ..Settings::default()
        };
        assert_eq!(
            told(late),
            Err("a request may wait 30s in all (for the first lists, for kubelets, for the scheduler) and take 30s: shorten the waits, or allow it more".to_owned())
        );
    }
}
