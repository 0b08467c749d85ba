//! Leader election by a Lease: who holds it, leads.
//!
//! Clocks are never compared between machines: a lease has expired when it has not changed for its duration by one's own clock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease as LeaseObject, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use rand::RngExt;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{Error, context::in_time, error::Result};

/// Which lease, held by whom, for how long.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Namespace of the lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// This process, usually its pod's name.
    pub identity: String,
    /// A lease that did not change for this long may be taken.
    pub duration: Duration,
    /// How often it is renewed, and looked at by those who wait.
    pub renew_every: Duration,
    /// The holder stops leading when it could not renew for this long; shorter than `duration`, so that two never lead.
    pub renew_deadline: Duration,
}

impl LeaseSettings {
    /// 12 s, renewed every 2 s, given up after 8 s: a little less than usual, so that another leads within 15 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(12),
            renew_every: Duration::from_secs(2),
            renew_deadline: Duration::from_secs(8),
        }
    }
}

/// A lease of the cluster.
#[derive(Clone)]
pub struct Lease {
    api: Api<LeaseObject>,
    settings: Arc<LeaseSettings>,
    /// When the write was begun by which it was taken or renewed last.
    renewed: watch::Sender<Option<Instant>>,
}

/// The time for which the holder of a lease knows that nobody else has it.
#[derive(Clone, Debug)]
pub struct Term {
    renewed: watch::Receiver<Option<Instant>>,
    deadline: Duration,
}

impl Term {
    /// Whether the lease was renewed lately enough. A process that was stopped for long finds so, before anything else, that it was not.
    pub fn lasts(&self) -> bool {
        let renewed = *self.renewed.borrow();
        renewed.is_some_and(|renewed| renewed.elapsed() <= self.deadline)
    }

    /// Resolves when it lasts; not any more, if the lease was lost for good.
    pub async fn lasting(&self) {
        let mut renewed = self.renewed.clone();
        while !self.lasts() {
            if renewed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// What was last seen of a lease, and when it was first seen so.
struct Sight {
    version: Option<String>,
    since: Instant,
}

impl Lease {
    /// A lease that nobody has asked for yet.
    pub fn new(client: Client, settings: LeaseSettings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            settings: Arc::new(settings),
            renewed: watch::Sender::new(None),
        }
    }

    /// The time for which this process leads.
    pub fn term(&self) -> Term {
        Term {
            renewed: self.renewed.subscribe(),
            deadline: self.settings.renew_deadline,
        }
    }

    /// Waits until this process holds the lease.
    pub async fn acquire(&self) {
        let mut sight = Sight {
            version: None,
            since: Instant::now(),
        };
        loop {
            let began = Instant::now();
            match self.try_take(&mut sight).await {
                Ok(true) => {
                    self.renewed.send_replace(Some(began));
                    info!(lease = self.settings.name, "Leading");
                    return;
                }
                Ok(false) => {}
                Err(error) => {
                    warn!(
                        error = error.chain(),
                        "Could not take the lease, trying again"
                    );
                }
            }
            let jitter = rand::rng().random_range(0.9..1.1);
            tokio::time::sleep(self.settings.renew_every.mul_f64(jitter)).await;
        }
    }

    /// Renews the lease until it is lost.
    ///
    /// # Errors
    /// Always: [`Error::LeaseLost`] when another holds it or it could not be renewed in time.
    pub async fn hold(&self) -> Result<std::convert::Infallible> {
        let lost = || Error::LeaseLost(self.settings.name.clone());
        let term = self.term();
        loop {
            tokio::time::sleep(self.settings.renew_every).await;
            // Not when it was answered: others may count from the write.
            let began = Instant::now();
            match self.renew().await {
                Ok(Renewal::Done) => {
                    self.renewed.send_replace(Some(began));
                }
                Ok(Renewal::Overtaken) => {}
                Ok(Renewal::Lost) => return Err(lost()),
                Err(error) => {
                    warn!(
                        error = error.chain(),
                        "Could not renew the lease, trying again"
                    );
                }
            }
            if !term.lasts() {
                return Err(lost());
            }
        }
    }

    /// Gives the lease up, so that another need not wait for it to expire.
    pub async fn release(&self) {
        let result = async {
            let Some(lease) = self.get().await? else {
                return Ok(());
            };
            if holder(&lease) == Some(&self.settings.identity) {
                self.put(&lease, None).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = result.await {
            warn!(
                error = error.chain(),
                "Could not give up the lease; it will expire"
            );
        }
    }

    async fn try_take(&self, sight: &mut Sight) -> Result<bool> {
        let Some(lease) = self.get().await? else {
            return self.create().await;
        };
        if sight.version != lease.resource_version() {
            sight.version = lease.resource_version();
            sight.since = Instant::now();
        }
        let free = holder(&lease).is_none_or(|name| name == &self.settings.identity);
        if free || sight.since.elapsed() >= self.settings.duration {
            return self.put(&lease, Some(&self.settings.identity)).await;
        }
        Ok(false)
    }

    async fn renew(&self) -> Result<Renewal> {
        let written = match self.get().await? {
            Some(lease) if holder(&lease) == Some(&self.settings.identity) => {
                self.put(&lease, Some(&self.settings.identity)).await?
            }
            Some(_) => return Ok(Renewal::Lost),
            None => self.create().await?,
        };
        Ok(if written {
            Renewal::Done
        } else {
            Renewal::Overtaken
        })
    }

    async fn get(&self) -> Result<Option<LeaseObject>> {
        let what = || "get the lease".to_owned();
        in_time(
            self.settings.renew_every,
            what,
            self.api.get_opt(&self.settings.name),
        )
        .await
    }

    async fn create(&self) -> Result<bool> {
        let lease = LeaseObject {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(None, Some(&self.settings.identity))),
        };
        let params = PostParams::default();
        let what = || "create the lease".to_owned();
        won(in_time(
            self.settings.renew_every,
            what,
            self.api.create(&params, &lease),
        )
        .await)
    }

    /// Writes the lease over the version that was seen; whoever comes second gets a conflict.
    async fn put(&self, seen: &LeaseObject, identity: Option<&str>) -> Result<bool> {
        let lease = LeaseObject {
            metadata: seen.metadata.clone(),
            spec: Some(self.spec(seen.spec.as_ref(), identity)),
        };
        let params = PostParams::default();
        let what = || "write the lease".to_owned();
        let call = self.api.replace(&self.settings.name, &params, &lease);
        won(in_time(self.settings.renew_every, what, call).await)
    }

    fn spec(&self, old: Option<&LeaseSpec>, identity: Option<&str>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let same = old.is_some_and(|old| old.holder_identity.as_deref() == identity);
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: identity.map(str::to_owned),
            lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
            acquire_time: if same {
                old.and_then(|old| old.acquire_time.clone())
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(transitions + i32::from(!same)),
            ..LeaseSpec::default()
        }
    }
}

/// What came of a try to renew the lease.
enum Renewal {
    Done,
    /// Somebody wrote it at the same moment, perhaps an earlier try whose answer came too late. Who holds it, the next look tells.
    Overtaken,
    /// Another holds it.
    Lost,
}

fn holder(lease: &LeaseObject) -> Option<&String> {
    lease
        .spec
        .as_ref()?
        .holder_identity
        .as_ref()
        .filter(|name| !name.is_empty())
}

fn won(result: Result<LeaseObject>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error)
            if error
                .answer()
                .is_some_and(|status| status.is_conflict() || status.is_already_exists()) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    /// A server whose lease somebody else writes whenever the holder wants to, so many times; then another holds it.
    fn contended(times: u32, writes: Arc<Mutex<u32>>) -> Client {
        let serve = service_fn(move |request: Request<Body>| {
            let mut writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
            let (code, answer) = if request.method() == Method::GET {
                let holder = if *writes < times { "own" } else { "other" };
                let spec = json!({"holderIdentity": holder});
                let metadata = json!({"name": "lead", "resourceVersion": writes.to_string()});
                (200, json!({"metadata": metadata, "spec": spec}))
            } else {
                *writes += 1;
                (
                    409,
                    json!({"status": "Failure", "reason": "Conflict", "code": 409, "message": "modified"}),
                )
            };
            let body = Body::from(answer.to_string().into_bytes());
            std::future::ready(Response::builder().status(code).body(body))
        });
        Client::new(serve, "ns")
    }

    #[tokio::test]
    async fn a_lease_that_was_written_at_the_same_moment_is_not_lost_by_that() {
        let writes = Arc::<Mutex<u32>>::default();
        let settings = LeaseSettings {
            renew_every: Duration::from_millis(5),
            renew_deadline: Duration::from_secs(3600),
            ..LeaseSettings::new("ns", "lead", "own")
        };
        let lease = Lease::new(contended(3, writes.clone()), settings);
        lease.renewed.send_replace(Some(Instant::now()));
        assert!(matches!(lease.hold().await, Err(Error::LeaseLost(_))));
        assert_eq!(*writes.lock().unwrap(), 3, "until another holds it");
    }
}
