//! Scenarios of a job with a fault at each of its writes: the job must end as without faults.

use std::future::Future;

use di_apiserver_tests::{Job, ProxyAction, RecordedRequest, Space};
use futures::{StreamExt, future::join_all, stream};
use jiff::Timestamp;
use tokio::sync::OnceCell;

use crate::faults::job_run::{FinalState, JOB, JobRun, ProxiedManager};

/// A scenario: the steps that a test takes with one job.
pub(crate) trait Scenario {
    /// Number of ended pods that remain.
    const LEFT: i32;

    /// The cached run without faults.
    fn reference_cell() -> &'static OnceCell<JobRun>;

    /// Starts a manager and everything else that the scenario needs.
    async fn start() -> ProxiedManager {
        ProxiedManager::start().await
    }

    /// Runs the scenario until the final state satisfies `is_over`.
    async fn drive(space: &Space, is_over: impl Fn(&FinalState) -> bool) -> FinalState;

    /// Returns the run without faults. Of several runs it is the one with the fewest writes, so
    /// that nearly all others have as many.
    async fn reference_run() -> &'static JobRun {
        const SOME: usize = 3;
        let live = async || {
            let managed = Self::start().await;
            let end = Self::drive(&managed.space, |end| end.is_complete(Self::LEFT)).await;
            managed.stop_and_record(end).await
        };
        let lived = Self::reference_cell().get_or_init(async || {
            let lives = join_all((0..SOME).map(|_| live())).await;
            assert!(
                lives.iter().all(|life| life.end == lives[0].end),
                "{lives:#?}"
            );
            lives.into_iter().min_by_key(JobRun::writes).unwrap()
        });
        lived.await
    }

    /// Runs the scenario until it ends like the reference.
    async fn complete_like_reference(space: &Space) -> FinalState {
        let reference = Self::reference_run().await;
        Self::drive(space, |end| *end == reference.end).await
    }

    /// Runs the scenario with this proxy rule.
    async fn run_with_rule(
        rule: impl Fn(&RecordedRequest) -> ProxyAction + Send + Sync + 'static,
    ) -> JobRun {
        let managed = Self::start().await;
        managed.proxy.set_rule(rule);
        let end = Self::complete_like_reference(&managed.space).await;
        managed.stop_and_record(end).await
    }
}

/// Runs all cases; each returns whether its run had the write that the case needs.
pub(crate) async fn run_cases<C, L: Future<Output = bool>>(
    cases: impl IntoIterator<Item = C>,
    at_once: usize,
    live: impl Fn(C) -> L,
) {
    let reached: Vec<_> = stream::iter(cases)
        .map(live)
        .buffer_unordered(at_once)
        .collect()
        .await;
    check_reached(reached);
}

/// Checks that most cases had their write. A run may need two writes fewer than the reference, as
/// debounced counts share a write on a busy machine.
pub(crate) fn check_reached(reached: impl IntoIterator<Item = bool>) {
    let (reached, missed): (Vec<_>, Vec<_>) = reached.into_iter().partition(|reached| *reached);
    let (missed, of) = (missed.len(), reached.len() + missed.len());
    assert!(missed * 5 <= of, "{missed} of {of} cases never came");
}

/// Applies each action to each write of the scenario.
pub(crate) async fn inject_at_each_write<C: Scenario>(fates: &[ProxyAction], at_once: usize) {
    let reference = C::reference_run().await;
    let cases = fates
        .iter()
        .flat_map(|fate| (1..=reference.writes()).map(move |at| (at, *fate)));
    run_cases(cases, at_once, |(at, fate)| async move {
        let lived = C::run_with_rule(move |request| {
            if request.write == at {
                fate
            } else {
                ProxyAction::Served
            }
        });
        let lived = Box::pin(lived).await;
        lived.check_against(reference, &format!("write {at}: {fate:?}"), 10);
        lived.writes() >= at
    })
    .await;
}

/// Kills the manager process at each of these writes: once before the API server receives it, and
/// once before its response.
pub(crate) async fn kill_at_writes<C: Scenario>(
    writes: impl Iterator<Item = usize>,
    at_once: usize,
    more: usize,
) {
    let reference = C::reference_run().await;
    let cases = writes.flat_map(|at| [(at, false), (at, true)]);
    run_cases(cases, at_once, |(at, arrives)| async move {
        let managed = C::start().await;
        let space = managed.space.clone();
        let lived =
            Box::pin(managed.kill_at_write(at, arrives, C::complete_like_reference(&space))).await;
        let (life, reached) = lived;
        let description = format!("killed at write {at}, arrives: {arrives}");
        life.check_against(reference, &description, more);
        reached
    })
    .await;
}

/// Replaces the manager when the job is complete: the next manager must find nothing to do.
pub(crate) async fn kill_at_the_end<C: Scenario>() {
    let reference = C::reference_run().await;
    let mut managed = C::start().await;
    let space = managed.space.clone();
    let end = C::complete_like_reference(&space).await;
    let died = Timestamp::now().strftime("%FT%T%.6fZ").to_string();
    managed.replace_manager().await;
    // Once the manager has handled a later job, it has reconciled all earlier ones.
    space.create(&Job::new("later", 0)).await;
    space.until_event("later", "SuccessfulCreate").await;
    let late = space.writes().await.into_iter();
    // Events may be sent late.
    let late = late.filter(|w| w.agent == "manager" && w.resource != "events");
    let late: Vec<_> = late
        .filter(|write| write.received > died && write.concerns_job(JOB))
        .collect();
    assert!(late.is_empty(), "{late:#?}");
    managed
        .stop_and_record(end)
        .await
        .check_against(reference, "died at the end", 40);
}
