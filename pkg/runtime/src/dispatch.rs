//! Hands tasks to whoever can do them.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use reqwest::{Client, RequestBuilder};
use serde::{Serialize, de::DeserializeOwned};
use tokio::task::JoinSet;

use crate::{
    Error, Result, chain,
    replica_table::ReadyReplica,
    lifecycle::{TaskReport, PauseGate},
    shared_replicas::SharedReplicas,
    wire::{Failure, Role, TAKES_NO_TASK, is_bad_task_status},
};

/// What tasks are handed out by.
#[derive(Clone, Copy, Debug)]
pub struct DispatchContext<'a> {
    /// Calls the replicas.
    pub client: &'a Client,
    /// Knows them.
    pub roster: &'a SharedReplicas,
    /// Lets tasks through.
    pub gate: &'a PauseGate,
}

/// Gives each task to a replica of the role that is free, until all are done; returns the reports
/// in the order of the tasks.
///
/// A task that fails, or whose replica leaves or is paused, goes to another one, unless it is the task itself that is at fault. Without any replica this waits
/// for successors; behind a closed gate, until it opens. As the result of a task depends on the task alone, it does not matter who does
/// it.
///
/// # Errors
/// A task was refused as a [bad one](is_of_bad_task) by two replicas, or twice by the only one.
pub async fn dispatch_tasks<T, R>(field: DispatchContext<'_>, role: Role, tasks: &[T]) -> Result<Vec<R>>
where
    T: Serialize,
    R: TaskReport + DeserializeOwned + Send + 'static,
{
    let DispatchContext {
        client,
        roster,
        gate,
    } = field;
    let mut changed = roster.subscribe();
    let mut told = gate.subscribe();
    let mut open: VecDeque<usize> = (0..tasks.len()).collect();
    let mut reports: Vec<Option<R>> = tasks.iter().map(|_| None).collect();
    let mut busy = HashMap::new();
    let mut running = JoinSet::new();
    let mut waiting = false;
    // Who has refused a task as a bad one.
    let mut refused: HashMap<usize, String> = HashMap::new();
    while reports.iter().any(Option::is_none) {
        let ready = roster.ready_replicas(role);
        if ready.is_empty() && running.is_empty() && !waiting {
            waiting = true;
            tracing::info!("waiting for a {role}");
        }
        for ReadyReplica { address, mut gone } in ready {
            if busy.contains_key(&address.pod) {
                continue;
            }
            let Some(task) = open.pop_front() else { break };
            let Some(flight) = gate.try_admit() else {
                open.push_front(task);
                break;
            };
            busy.insert(address.pod.clone(), flight);
            waiting = false;
            let limit = roster.timeouts().task;
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
                let flight = busy.remove(&pod);
                match outcome {
                    Some(Ok(report)) => {
                        roster.task_done(&pod);
                        if let Some(flight) = flight {
                            flight.complete(report.poll_result());
                        }
                        reports[task] = Some(report);
                    }
                    Some(Err(Error::GivenBack { reason, .. })) => {
                        tracing::info!("{pod} takes no task on: {reason}");
                        roster.mark_paused(&pod);
                        open.push_front(task);
                    }
                    Some(Err(error)) => {
                        let is_bad = matches!(&error, Error::TaskFailed { status, .. } if is_bad_task_status(*status));
                        if is_bad {
                            let before = refused.insert(task, pod.clone());
                            let is_alone = roster.ready_replicas(role).len() == 1;
                            if before.is_some_and(|before| before != pod || is_alone) {
                                return Err(error);
                            }
                        }
                        tracing::warn!("a task of {pod} goes to another {role}: {}", chain(&error));
                        roster.task_failed(&pod, !matches!(error, Error::Unreachable { .. }));
                        open.push_front(task);
                    }
                    None => open.push_front(task),
                }
            }
            _ = changed.changed() => {}
            _ = told.changed() => {}
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
        // It took the task and did not finish it, which is another thing than not being there.
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
        let reason = failure.map_or("it gave no reason".to_owned(), |Failure { error }| error);
        return Err(if status == TAKES_NO_TASK {
            Error::GivenBack { replica, reason }
        } else {
            failed(status, reason)
        });
    }
    serde_json::from_slice(&body)
        .map_err(|error| failed(status, format!("its report cannot be read: {error}")))
}
