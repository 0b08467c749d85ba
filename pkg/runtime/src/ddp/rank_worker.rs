use std::time::Duration;

use serde::Deserialize;

use super::Group;
use crate::{
    Error, Result, chain,
    learner::Learner,
    lifecycle::{PollResult, Stats, Worker},
};

/// How long a poll listens for a call. LifecycleHandles wait for it.
const LISTEN: Duration = Duration::from_millis(200);

/// There is nothing to configure: rank 0 says how to train.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoConfig {}

/// Another rank than 0: joins in when it is called to a task.
#[derive(Debug)]
pub(super) struct RankWorker {
    learner: Learner,
    group: Group,
    stats: Stats,
}

impl RankWorker {
    pub(super) const fn new(learner: Learner, group: Group) -> Self {
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
        let Some((number, call)) = self.group.poll_task(LISTEN)? else {
            return Ok(PollResult::NOTHING);
        };
        let loaded = self.learner.load_task(&call.task, &call.settings);
        if let Err(error) = &loaded {
            tracing::error!("task failed: {}", chain(error));
        }
        let Some(mut loaded) = self.group.join_task(number, loaded)? else {
            return Ok(PollResult::NOTHING);
        };
        let progress = call.task.progress;
        let trained = loaded.train_model(&call.settings, progress, call.seed, &mut self.group);
        if let Err(error @ Error::Diverged) = &trained {
            // All ranks find that at the same step, and rank 0 tells.
            tracing::error!("task failed: {}", chain(error));
            return Ok(PollResult::NOTHING);
        }
        self.stats = trained?.stats();
        Ok(PollResult {
            samples: loaded.frames,
            batches: 1,
        })
    }

    fn stats(&self) -> Stats {
        self.stats.clone()
    }
}
