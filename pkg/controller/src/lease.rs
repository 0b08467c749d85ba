//! Leader election with a `Lease` object, compatible with client-go.
//!
//! Clocks of machines are never compared: a lease is expired when it has not changed for its
//! duration, measured by the local clock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use di_cache::call_with_timeout;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease as LeaseObject, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use rand::RngExt;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{Error, error::Result};

/// Settings of a lease, with the field names of client-go's leader election.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Identity of this process, usually the name of its pod.
    pub identity: String,
    /// Other processes may take a lease that has not changed for this long.
    pub duration: Duration,
    /// Interval between renewals, and between tries to acquire the lease.
    pub retry_period: Duration,
    /// The holder stops when it could not renew for this long. Shorter than `duration`, so that
    /// two processes never lead at the same time.
    pub renew_deadline: Duration,
}

impl LeaseSettings {
    /// Returns settings with a duration of 12 s, a retry period of 2 s and a renew deadline of
    /// 8 s. These are below client-go's defaults, so that another process leads within 15 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(12),
            retry_period: Duration::from_secs(2),
            renew_deadline: Duration::from_secs(8),
        }
    }
}

/// A lease of the cluster.
#[derive(Clone)]
pub struct Lease {
    api: Api<LeaseObject>,
    settings: Arc<LeaseSettings>,
    /// Start time of the last write that acquired or renewed the lease.
    renewed: watch::Sender<Option<Instant>>,
}

/// Fencing token of the leader: valid while no other process can hold the lease.
#[derive(Clone, Debug)]
pub struct LeaderToken {
    renewed: watch::Receiver<Option<Instant>>,
    deadline: Duration,
}

impl LeaderToken {
    /// Returns true if the last renewal is recent enough. A process that was paused for long finds
    /// its token invalid before it writes anything.
    pub fn is_valid(&self) -> bool {
        let renewed = *self.renewed.borrow();
        renewed.is_some_and(|renewed| renewed.elapsed() <= self.deadline)
    }

    /// Waits until the token is valid. It never resolves after the lease is lost.
    pub async fn wait_until_valid(&self) {
        let mut renewed = self.renewed.clone();
        while !self.is_valid() {
            if renewed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Last observed version of a lease, and the local time of its first observation.
struct ObservedLease {
    version: Option<String>,
    since: Instant,
}

impl Lease {
    /// Creates a client of the lease. It sends no request.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            settings: Arc::new(settings),
            renewed: watch::Sender::new(None),
        }
    }

    /// Returns the token that is valid while this process leads.
    pub fn leader_token(&self) -> LeaderToken {
        LeaderToken {
            renewed: self.renewed.subscribe(),
            deadline: self.settings.renew_deadline,
        }
    }

    /// Waits until this process holds the lease.
    pub async fn acquire(&self) {
        let mut observed = ObservedLease {
            version: None,
            since: Instant::now(),
        };
        loop {
            let start = Instant::now();
            match self.try_acquire(&mut observed).await {
                Ok(true) => {
                    self.renewed.send_replace(Some(start));
                    info!(
                        lease = self.settings.name,
                        "Acquired the lease, became leader"
                    );
                    return;
                }
                Ok(false) => {}
                Err(error) => {
                    warn!(error = error.chain(), "Cannot acquire the lease, retrying");
                }
            }
            let jitter = rand::rng().random_range(0.9..1.1);
            tokio::time::sleep(self.settings.retry_period.mul_f64(jitter)).await;
        }
    }

    /// Renews the lease until it is lost.
    ///
    /// # Errors
    /// Always: [`Error::LeaseLost`] when another process holds the lease, or it could not be
    /// renewed in time.
    pub async fn renew_loop(&self) -> Result<std::convert::Infallible> {
        let lost = || Error::LeaseLost(self.settings.name.clone());
        let token = self.leader_token();
        loop {
            tokio::time::sleep(self.settings.retry_period).await;
            // Measured before the request: other processes may count from the write, which comes
            // before the response.
            let start = Instant::now();
            match self.renew_once().await {
                Ok(Renewal::Done) => {
                    self.renewed.send_replace(Some(start));
                }
                Ok(Renewal::Conflict) => {}
                Ok(Renewal::Lost) => return Err(lost()),
                Err(error) => {
                    warn!(error = error.chain(), "Cannot renew the lease, retrying");
                }
            }
            if !token.is_valid() {
                return Err(lost());
            }
        }
    }

    /// Clears the holder, so that another process need not wait for the lease to expire.
    pub async fn release(&self) {
        let result = async {
            let Some(lease) = self.get_lease().await? else {
                return Ok(());
            };
            if holder_of(&lease) == Some(&self.settings.identity) {
                self.write_lease(&lease, None).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = result.await {
            warn!(
                error = error.chain(),
                "Cannot release the lease; it will expire"
            );
        }
    }

    async fn try_acquire(&self, observed: &mut ObservedLease) -> Result<bool> {
        let Some(lease) = self.get_lease().await? else {
            return self.create_lease().await;
        };
        if observed.version != lease.resource_version() {
            observed.version = lease.resource_version();
            observed.since = Instant::now();
        }
        let is_free = holder_of(&lease).is_none_or(|name| name == &self.settings.identity);
        if is_free || observed.since.elapsed() >= self.settings.duration {
            return self
                .write_lease(&lease, Some(&self.settings.identity))
                .await;
        }
        Ok(false)
    }

    async fn renew_once(&self) -> Result<Renewal> {
        let written = match self.get_lease().await? {
            Some(lease) if holder_of(&lease) == Some(&self.settings.identity) => {
                self.write_lease(&lease, Some(&self.settings.identity))
                    .await?
            }
            Some(_) => return Ok(Renewal::Lost),
            None => self.create_lease().await?,
        };
        Ok(if written {
            Renewal::Done
        } else {
            Renewal::Conflict
        })
    }

    async fn get_lease(&self) -> Result<Option<LeaseObject>> {
        let call = self.api.get_opt(&self.settings.name);
        Ok(call_with_timeout(self.call_timeout(), || self.describe("get"), call).await?)
    }

    async fn create_lease(&self) -> Result<bool> {
        let lease = LeaseObject {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.lease_spec(None, Some(&self.settings.identity))),
        };
        let params = PostParams::default();
        let call = self.api.create(&params, &lease);
        let operation = || self.describe("create");
        let written = call_with_timeout(self.call_timeout(), operation, call).await;
        write_succeeded(written.map_err(Error::from))
    }

    /// Replaces the observed version of the lease. Returns false on a conflict.
    async fn write_lease(&self, observed: &LeaseObject, identity: Option<&str>) -> Result<bool> {
        let lease = LeaseObject {
            metadata: observed.metadata.clone(),
            spec: Some(self.lease_spec(observed.spec.as_ref(), identity)),
        };
        let params = PostParams::default();
        let call = self.api.replace(&self.settings.name, &params, &lease);
        let operation = || self.describe("write");
        let written = call_with_timeout(self.call_timeout(), operation, call).await;
        write_succeeded(written.map_err(Error::from))
    }

    /// Two tries fit into the renew deadline, so a slow API server does not cost the lease.
    fn call_timeout(&self) -> Duration {
        self.settings.renew_deadline / 2
    }

    fn describe(&self, verb: &str) -> String {
        let LeaseSettings {
            namespace, name, ..
        } = &*self.settings;
        format!("{verb} lease {namespace}/{name}")
    }

    fn lease_spec(&self, old: Option<&LeaseSpec>, identity: Option<&str>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let same_holder = old.is_some_and(|old| old.holder_identity.as_deref() == identity);
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: identity.map(str::to_owned),
            lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
            acquire_time: if same_holder {
                old.and_then(|old| old.acquire_time.clone())
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(transitions + i32::from(!same_holder)),
            ..LeaseSpec::default()
        }
    }
}

/// Result of one renewal.
enum Renewal {
    Done,
    /// Another write came first, perhaps an earlier renewal without response. The next read shows
    /// the holder.
    Conflict,
    /// Another process holds the lease.
    Lost,
}

fn holder_of(lease: &LeaseObject) -> Option<&String> {
    lease
        .spec
        .as_ref()?
        .holder_identity
        .as_ref()
        .filter(|name| !name.is_empty())
}

/// Returns false if another process wrote first.
fn write_succeeded(result: Result<LeaseObject>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error)
            if error
                .api_status()
                .is_some_and(|status| status.is_conflict() || status.is_already_exists()) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use di_fixtures::{ApiServerMock, Reply};
    use http::Method;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn renewal_conflict_does_not_lose_the_lease() {
        let mut writes = 0;
        let (mock, client) = ApiServerMock::new(move |request| {
            if request.method != Method::GET {
                writes += 1;
                return Reply::error(409, "modified");
            }
            let holder = if writes < 3 { "own" } else { "other" };
            let metadata = json!({"name": "lead", "resourceVersion": writes.to_string()});
            Reply::Object(
                200,
                json!({"metadata": metadata, "spec": {"holderIdentity": holder}}),
            )
        });
        let settings = LeaseSettings {
            retry_period: Duration::from_millis(5),
            renew_deadline: Duration::from_secs(3600),
            ..LeaseSettings::new("ns", "lead", "own")
        };
        let lease = Lease::new(client, settings);
        lease.renewed.send_replace(Some(Instant::now()));
        assert!(matches!(lease.renew_loop().await, Err(Error::LeaseLost(_))));
        let requests = mock.requests().into_iter();
        let writes = requests.filter(|request| request.method != Method::GET);
        assert_eq!(writes.count(), 3, "until another process holds it");
    }
}
