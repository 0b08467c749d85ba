//! How many replicas a coordinator has: `PUT /replicas` says how many it should have, and the replica endpoint is asked for more or fewer until
//! it has granted that.

mod pending_changes;

use std::time::{Duration, Instant};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

use crate::{
    Result, chain, config,
    endpoint::Endpoint,
    progress::count_noun,
    wire::{Envelope, Replicas},
};
use pending_changes::{LIST_DELAY, PendingChanges, Step};

/// Numbers of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Collectors.
    pub collectors: u32,
    /// Learners.
    pub learners: u32,
}

impl Counts {
    /// Of each the smaller number.
    pub(crate) fn min_of_each(self, other: Self) -> Self {
        Self {
            collectors: self.collectors.min(other.collectors),
            learners: self.learners.min(other.learners),
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let collectors = count_noun(self.collectors as usize, "collector");
        let learners = count_noun(self.learners as usize, "learner");
        write!(formatter, "{collectors} and {learners}")
    }
}

/// What is to be changed; the rest stays.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    collectors: Option<u32>,
    learners: Option<u32>,
}

/// How many are wanted. Clones are of the same numbers.
#[derive(Clone, Debug)]
pub struct Scale {
    wanted: watch::Sender<Counts>,
    /// It has seen nothing but what was wanted at first.
    orders: watch::Receiver<Counts>,
    /// Why there can be no others.
    fixed: Option<String>,
}

impl Scale {
    /// So many are wanted at first; those that the `job` declares are changed there, if it has no others.
    pub fn new(first: Counts, declared: bool, job: &str) -> Self {
        let fixed = declared || first == Counts::default();
        let (wanted, orders) = watch::channel(first);
        Self {
            wanted,
            orders,
            fixed: fixed.then(|| {
                format!(
                    "the replicas are those that the job declares: change them by kubectl di replicas set {job} --collectors=N --learners=M"
                )
            }),
        }
    }

    /// Whether the job's own spec says how many there are.
    pub const fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// So many were wanted of the one before it.
    pub(crate) fn restore_counts(&self, counts: Counts) {
        self.wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, counts) != counts);
    }

    /// How many are wanted.
    pub fn wanted_counts(&self) -> Counts {
        *self.wanted.borrow()
    }

    /// `GET /replicas` and `PUT /replicas`, in the endpoint's envelope.
    pub fn build_router(&self) -> Router {
        Router::new()
            .route("/replicas", get(get_replicas).put(put_replicas))
            .with_state(self.clone())
    }

    /// Asks for more or fewer whenever other numbers are wanted, for ever; again after each pause. The key makes repeating safe, and is of
    /// this start of a coordinator, which these were granted to before.
    pub async fn follow_wanted(
        &self,
        endpoint: &Endpoint,
        key: &str,
        pause: Duration,
        granted: &Replicas,
    ) {
        let mut orders = self.orders.clone();
        let mut asking = ScaleRequests {
            endpoint,
            key,
            ledger: PendingChanges::default(),
            number: 0,
            there: *orders.borrow(),
            doubtful: None,
        };
        asking.ledger.record_granted(granted, Instant::now());
        // It cannot close: this is a sender of it.
        while orders.changed().await.is_ok() {
            let mut wanted = *orders.borrow_and_update();
            let mut told = String::new();
            loop {
                match asking.request_step(wanted).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) if error.is_transient() => {
                        let why = chain(&error);
                        if why != told {
                            tracing::warn!("asking for {wanted} again: {why}");
                            told = why;
                        }
                        sleep(pause).await;
                    }
                    Err(error) => {
                        tracing::error!("there cannot be {wanted}: {}", chain(&error));
                        asking.doubtful = None;
                        // Unless others are wanted by now, it stays as it is.
                        self.wanted.send_if_modified(|now| {
                            *now = if *now == wanted { asking.there } else { *now };
                            false
                        });
                        break;
                    }
                }
                if orders.has_changed().unwrap_or_default() {
                    wanted = *orders.borrow_and_update();
                    if asking.doubtful.take().is_some() {
                        // If it was served after all, the list tells.
                        sleep(LIST_DELAY).await;
                    }
                }
            }
        }
    }
}

/// Asks the endpoint, one request after the other.
struct ScaleRequests<'a> {
    endpoint: &'a Endpoint,
    key: &'a str,
    ledger: PendingChanges,
    number: u64,
    /// How many there were when it last looked.
    there: Counts,
    /// What was asked for with the last key, if it is not known to be granted.
    doubtful: Option<Step>,
}

impl ScaleRequests<'_> {
    /// Makes the next step; whether none was left to make.
    async fn request_step(&mut self, wanted: Counts) -> Result<bool> {
        let step = if let Some(step) = self.doubtful {
            step
        } else {
            let listed = self.endpoint.list_replicas().await?;
            let there = self.ledger.count_replicas(&listed, Instant::now());
            self.there = there;
            let Some(step) = Step::next_step(there, wanted) else {
                tracing::info!("there are {there}");
                return Ok(true);
            };
            self.number += 1;
            step
        };
        self.doubtful = Some(step);
        let key = format!("{}-{}", self.key, self.number);
        match step {
            Step::More(counts) => {
                tracing::info!("asking for {counts} more");
                let Counts {
                    collectors,
                    learners,
                } = counts;
                let granted = self.endpoint.add_replicas(collectors, learners, &key).await?;
                self.ledger.record_granted(&granted, Instant::now());
            }
            Step::Fewer(counts) => {
                tracing::info!("asking for {counts} fewer");
                let Counts {
                    collectors,
                    learners,
                } = counts;
                let gone = self.endpoint.remove_replicas(collectors, learners, &key).await?;
                self.ledger.record_removed(&gone, Instant::now());
            }
        }
        self.doubtful = None;
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
        tracing::info!("{wanted} are wanted");
    });
    counts_response(scale.wanted_counts())
}

fn counts_response(counts: Counts) -> Response {
    Json(Envelope::new_success(json!(counts))).into_response()
}

fn error_response(status: StatusCode, why: String) -> Response {
    (status, Json(Envelope::new_failure(why, json!(null)))).into_response()
}
