//! Dispatches tasks to replicas.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use reqwest::{Client, RequestBuilder};
use serde::{Serialize, de::DeserializeOwned};
use tokio::task::JoinSet;

use crate::{
    Error, Result, chain,
    coordinator::{replica_table::ReadyReplica, shared_replicas::SharedReplicas},
    lifecycle::{PauseGate, TaskReport},
    protocol::wire::{Failure, Role, TAKES_NO_TASK, is_bad_task_status},
};

/// The dependencies of the dispatcher.
#[derive(Clone, Copy, Debug)]
pub struct DispatchContext<'a> {
    /// The HTTP client.
    pub client: &'a Client,
    /// The replicas.
    pub replicas: &'a SharedReplicas,
    /// Admits tasks.
    pub gate: &'a PauseGate,
}

/// Sends each task to a free replica of the role until all are done. Returns the reports in the
/// order of the tasks.
///
/// A task that fails, or whose replica leaves or is paused, is sent to another replica, unless the
/// task itself is bad. Without replicas it waits for them; while the gate is paused, it waits for
/// the start. The result depends only on the task, so any replica can run it.
///
/// # Errors
/// A replica rejected a task as [bad](is_bad_task_status).
pub async fn dispatch_tasks<T, R>(
    field: DispatchContext<'_>,
    role: Role,
    tasks: &[T],
) -> Result<Vec<R>>
where
    T: Serialize,
    R: TaskReport + DeserializeOwned + Send + 'static,
{
    let DispatchContext {
        client,
        replicas,
        gate,
    } = field;
    let mut changed = replicas.subscribe();
    let mut status_changes = gate.subscribe();
    let mut open: VecDeque<usize> = (0..tasks.len()).collect();
    let mut reports: Vec<Option<R>> = tasks.iter().map(|_| None).collect();
    let mut busy = HashMap::new();
    let mut running = JoinSet::new();
    let mut waiting = false;
    while reports.iter().any(Option::is_none) {
        let ready = replicas.ready_replicas(role);
        if ready.is_empty() && running.is_empty() && !waiting {
            waiting = true;
            tracing::info!("waiting for a {role} replica");
        }
        for ReadyReplica { address, mut gone } in ready {
            if busy.contains_key(&address.pod) {
                continue;
            }
            let Some(task) = open.pop_front() else { break };
            let Some(in_flight) = gate.try_admit() else {
                open.push_front(task);
                break;
            };
            busy.insert(address.pod.clone(), in_flight);
            waiting = false;
            let limit = replicas.timeouts().task;
            let url = format!("http://{}/task", address.url);
            let request = client.post(&url).json(&tasks[task]).timeout(limit);
            let call = send_task::<R>(request, url, address.pod.clone(), limit);
            running.spawn(async move {
                let outcome = tokio::select! {
                    outcome = call => Some(outcome),
                    _ = gone.changed() => None,
                };
                (task, address.pod, outcome)
            });
        }
        tokio::select! {
            Some(Ok((task, pod, outcome))) = running.join_next() => {
                let in_flight = busy.remove(&pod);
                match outcome {
                    Some(Ok(report)) => {
                        replicas.task_done(&pod);
                        if let Some(in_flight) = in_flight {
                            in_flight.complete(report.poll_result());
                        }
                        reports[task] = Some(report);
                    }
                    Some(Err(Error::GivenBack { reason, .. })) => {
                        tracing::info!("replica {pod} returned its task: {reason}");
                        replicas.mark_paused(&pod);
                        open.push_front(task);
                    }
                    Some(Err(error)) => {
                        if matches!(&error, Error::TaskFailed { status, .. } if is_bad_task_status(*status)) {
                            return Err(error);
                        }
                        tracing::warn!("task of replica {pod} failed, sending it to another {role}: {}", chain(&error));
                        replicas.task_failed(&pod, !matches!(error, Error::Unreachable { .. }));
                        open.push_front(task);
                    }
                    None => open.push_front(task),
                }
            }
            _ = changed.changed() => {}
            _ = status_changes.changed() => {}
        }
    }
    Ok(reports.into_iter().flatten().collect())
}

/// Sends one task and waits for its report.
pub(crate) async fn send_task<R: DeserializeOwned>(
    request: RequestBuilder,
    url: String,
    replica: String,
    limit: Duration,
) -> Result<R> {
    let failed = |status, message| Error::TaskFailed {
        replica: replica.clone(),
        status,
        message,
    };
    let broken = |source: reqwest::Error| {
        // A read timeout is a failed task; a failed connection means an unreachable replica.
        if source.is_timeout() && !source.is_connect() {
            failed(504, format!("no report within {} s", limit.as_secs()))
        } else {
            Error::Unreachable {
                url: url.clone(),
                source,
            }
        }
    };
    let response = request.send().await.map_err(broken)?;
    let status = response.status().as_u16();
    let body = response.bytes().await.map_err(broken)?;
    if status != 200 {
        let failure = serde_json::from_slice(&body);
        let reason = failure.map_or("no reason given".to_owned(), |Failure { error }| error);
        return Err(if status == TAKES_NO_TASK {
            Error::GivenBack { replica, reason }
        } else {
            failed(status, reason)
        });
    }
    serde_json::from_slice(&body)
        .map_err(|error| failed(status, format!("cannot parse its report: {error}")))
}
