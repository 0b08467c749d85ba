use std::time::Duration;

use serde::Deserialize;

use crate::{
    Error, Result, chain,
    distributed::process_group::TcpProcessGroup,
    learner::Learner,
    lifecycle::{PollResult, Stats, Worker},
};

/// How long a poll waits for a task. Life-cycle calls wait for the poll.
const TASK_WAIT: Duration = Duration::from_millis(200);

/// The empty configuration: rank 0 sends the settings.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoConfig {}

/// A rank other than 0: joins the tasks of rank 0.
#[derive(Debug)]
pub(super) struct RankWorker {
    learner: Learner,
    group: TcpProcessGroup,
    stats: Stats,
}

impl RankWorker {
    pub(super) const fn new(learner: Learner, group: TcpProcessGroup) -> Self {
        Self {
            learner,
            group,
            stats: Stats::new(),
        }
    }
}

impl Worker for RankWorker {
    type Config = NoConfig;

    const NAME: &'static str = "learner";

    fn configure(&mut self, _: NoConfig) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self) -> Result<PollResult> {
        let Some((number, call)) = self.group.poll_task(TASK_WAIT)? else {
            return Ok(PollResult::NOTHING);
        };
        let loaded = self.learner.load_task(&call.task);
        if let Err(error) = &loaded {
            tracing::error!("task failed: {}", chain(error));
        }
        let Some(mut loaded) = self.group.join_task(number, loaded)? else {
            return Ok(PollResult::NOTHING);
        };
        let trained = loaded.train_model(&call.settings, &call.task, &mut self.group);
        if let Err(error @ Error::Diverged) = &trained {
            // All ranks detect this at the same step, and rank 0 reports it.
            tracing::error!("task failed: {}", chain(error));
            return Ok(PollResult::NOTHING);
        }
        self.stats = trained?.stats();
        Ok(PollResult {
            samples: loaded.frame_count(),
            batches: 1,
        })
    }

    fn stats(&self) -> Stats {
        self.stats.clone()
    }
}
