use anyhow::Result;
use di_client::{
    Cluster, Job, Progress, RestartedPod, WaitState, describe_wait, removing_replicas,
    replicas_ready_state, wait_for_job,
};

use crate::{flags::wait::WaitFlags, output::progress_bar::ProgressBar};

/// The condition of a wait in addition to the readiness of every planned replica.
#[derive(Clone, Copy)]
pub enum AlsoWait<'a> {
    Nothing,
    /// These replicas are replaced.
    Replacements(&'a [RestartedPod]),
    /// The pods of removed replicas are deleted.
    Deletions,
}

/// Waits until every planned replica is ready and the additional condition holds.
pub async fn wait_until_ready(
    cluster: &Cluster,
    changed: &Job,
    also_wait: AlsoWait<'_>,
    waiting: WaitFlags,
) -> Result<()> {
    let message = format!("replicas of {} ready", changed.name());
    let bar = ProgressBar::with_count(message.clone());
    let generation = changed.metadata.generation;
    let removing = |job: &Job| match also_wait {
        AlsoWait::Deletions => removing_replicas(job).count(),
        AlsoWait::Nothing | AlsoWait::Replacements(_) => 0,
    };
    let old = match also_wait {
        AlsoWait::Replacements(old) => old,
        AlsoWait::Nothing | AlsoWait::Deletions => &[],
    };
    let check = |job: &Job| {
        bar.set_progress(Progress::of_job(job));
        let outlook = replicas_ready_state(job, generation, old);
        match removing(job) {
            0 => bar.set_message(message.clone()),
            count => bar.set_message(format!("{message}, {count} being deleted")),
        }
        match outlook {
            WaitState::Met if removing(job) > 0 => WaitState::Pending,
            outlook => outlook,
        }
    };
    let missing = |job: &Job| {
        let names: Vec<_> = removing_replicas(job).collect();
        match (job.problem_summary(), removing(job)) {
            (None, 1..) => format!(
                "{} of {} to be deleted",
                names.join(", "),
                job.resource_name()
            ),
            _ => describe_wait("the replicas")(job),
        }
    };
    wait_for_job(cluster, changed.name(), waiting.deadline(), check, missing).await?;
    Ok(())
}
