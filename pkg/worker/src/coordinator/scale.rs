//! The number of replicas of a coordinator. `PUT /replicas` sets it; the replica endpoint is asked
//! for more or fewer until it has granted it.

use std::time::{Duration, Instant};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::watch, time::sleep};

use super::pending_changes::{LIST_DELAY, PendingChanges, Step};
use crate::{
    Result, chain,
    coordinator::{counts::Counts, endpoint::Endpoint},
    protocol::{
        config,
        wire::{Envelope, Replicas},
    },
};

/// The body of `PUT /replicas`; omitted roles do not change.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    collectors: Option<u32>,
    learners: Option<u32>,
}

/// The wanted numbers of replicas. Clones share them.
#[derive(Clone, Debug)]
pub struct Scale {
    wanted: watch::Sender<Counts>,
    /// Has seen only the first counts.
    changes: watch::Receiver<Counts>,
    /// Why the counts cannot be changed.
    fixed: Option<String>,
}

impl Scale {
    /// Starts with these counts. The counts of a `job` that declares its replicas cannot be
    /// changed.
    pub fn new(first: Counts, declared: bool, job: &str) -> Self {
        let fixed = declared || first == Counts::default();
        let (wanted, changes) = watch::channel(first);
        Self {
            wanted,
            changes,
            fixed: fixed.then(|| {
                format!(
                    "the spec of the job declares its replicas: change them with kubectl di replicas set {job} --collectors=N --learners=M"
                )
            }),
        }
    }

    /// Whether the spec of the job declares the replicas.
    pub const fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// Restores the counts of the previous coordinator instance.
    pub(crate) fn restore_counts(&self, counts: Counts) {
        self.wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, counts) != counts);
    }

    /// The wanted counts.
    pub fn wanted_counts(&self) -> Counts {
        *self.wanted.borrow()
    }

    /// The routes `GET /replicas` and `PUT /replicas`, with the endpoint's envelope.
    pub fn build_router(&self) -> Router {
        Router::new()
            .route("/replicas", get(get_replicas).put(put_replicas))
            .with_state(self.clone())
    }

    /// Requests more or fewer replicas after each change, until dropped; retries after `pause`. The
    /// idempotency key belongs to this coordinator start; `granted` are its first replicas.
    pub async fn follow_wanted(
        &self,
        endpoint: &Endpoint,
        key: &str,
        pause: Duration,
        granted: &Replicas,
    ) {
        let mut changes = self.changes.clone();
        let mut requests = ScaleRequests {
            endpoint,
            key,
            ledger: PendingChanges::default(),
            number: 0,
            present: *changes.borrow(),
            unconfirmed: None,
        };
        requests.ledger.record_granted(granted, Instant::now());
        // The channel cannot close: `self` holds a sender.
        while changes.changed().await.is_ok() {
            let mut wanted = *changes.borrow_and_update();
            let mut logged = String::new();
            loop {
                match requests.request_step(wanted).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) if error.is_transient() => {
                        let why = chain(&error);
                        if why != logged {
                            tracing::warn!("request for {wanted} failed, retrying: {why}");
                            logged = why;
                        }
                        sleep(pause).await;
                    }
                    Err(error) => {
                        tracing::error!("cannot get {wanted}: {}", chain(&error));
                        requests.unconfirmed = None;
                        // Unless the wanted counts changed, return to the present ones.
                        self.wanted.send_if_modified(|now| {
                            *now = if *now == wanted {
                                requests.present
                            } else {
                                *now
                            };
                            false
                        });
                        break;
                    }
                }
                if changes.has_changed().unwrap_or_default() {
                    wanted = *changes.borrow_and_update();
                    if requests.unconfirmed.take().is_some() {
                        // The request may have succeeded: wait until the list shows it.
                        sleep(LIST_DELAY).await;
                    }
                }
            }
        }
    }
}

/// Sends one request after another to the endpoint.
struct ScaleRequests<'a> {
    endpoint: &'a Endpoint,
    key: &'a str,
    ledger: PendingChanges,
    number: u64,
    /// The counts at the last look at the list.
    present: Counts,
    /// The last request, until it is confirmed. It is repeated with the same key.
    unconfirmed: Option<Step>,
}

impl ScaleRequests<'_> {
    /// Makes the next request; true if none is needed.
    async fn request_step(&mut self, wanted: Counts) -> Result<bool> {
        let step = if let Some(step) = self.unconfirmed {
            step
        } else {
            let listed = self.endpoint.list_replicas().await?;
            let present = self.ledger.count_replicas(&listed, Instant::now());
            self.present = present;
            let Some(step) = Step::next_step(present, wanted) else {
                tracing::info!("reached {present}");
                return Ok(true);
            };
            self.number += 1;
            step
        };
        self.unconfirmed = Some(step);
        let key = format!("{}-{}", self.key, self.number);
        match step {
            Step::More(counts) => {
                tracing::info!("requesting {counts} more");
                let Counts {
                    collectors,
                    learners,
                } = counts;
                let granted = self
                    .endpoint
                    .add_replicas(collectors, learners, &key)
                    .await?;
                self.ledger.record_granted(&granted, Instant::now());
            }
            Step::Fewer(counts) => {
                tracing::info!("removing {counts}");
                let Counts {
                    collectors,
                    learners,
                } = counts;
                let removed = self
                    .endpoint
                    .remove_replicas(collectors, learners, &key)
                    .await?;
                self.ledger.record_removed(&removed, Instant::now());
            }
        }
        self.unconfirmed = None;
        Ok(false)
    }
}

async fn get_replicas(State(scale): State<Scale>) -> Response {
    match &scale.fixed {
        Some(why) => error_response(StatusCode::CONFLICT, why.clone()),
        None => counts_response(scale.wanted_counts()),
    }
}

async fn put_replicas(State(scale): State<Scale>, body: Bytes) -> Response {
    if let Some(why) = &scale.fixed {
        return error_response(StatusCode::CONFLICT, why.clone());
    }
    let change: Change = match config::parse_config(&body) {
        Ok(change) => change,
        Err(error) => return error_response(StatusCode::BAD_REQUEST, error.to_string()),
    };
    scale.wanted.send_modify(|wanted| {
        wanted.collectors = change.collectors.unwrap_or(wanted.collectors);
        wanted.learners = change.learners.unwrap_or(wanted.learners);
        tracing::info!("wanted: {wanted}");
    });
    counts_response(scale.wanted_counts())
}

fn counts_response(counts: Counts) -> Response {
    Json(Envelope::new_success(json!(counts))).into_response()
}

fn error_response(status: StatusCode, why: String) -> Response {
    (status, Json(Envelope::new_failure(why, json!(null)))).into_response()
}
