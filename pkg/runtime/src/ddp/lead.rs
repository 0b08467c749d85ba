use super::{Group, link::Call};
use crate::{
    Error, Result,
    learner::Learner,
    ppo::Settings,
    tasks::TaskWorker,
    wire::{LearnerReport, LearnerTask, Role},
};

/// Rank 0: takes the tasks on, and does them with the others.
#[derive(Debug)]
pub(super) struct Leader {
    learner: Learner,
    group: Group,
}

impl Leader {
    pub(super) const fn new(learner: Learner, group: Group) -> Self {
        Self { learner, group }
    }

    fn lead(&mut self, task: LearnerTask, seed: u64) -> Result<LearnerReport> {
        let Self { learner, group } = self;
        let settings = learner.config();
        let call = Call {
            task,
            seed,
            settings,
        };
        let mut loaded = group.call(&call, || learner.load(&call.task, &call.settings))?;
        // Numbers may change a little on their way, and must be the same for all.
        let Call {
            task,
            seed,
            settings,
        } = call.sent()?;
        let losses = loaded.train(&settings, task.progress, seed, group)?;
        learner.store(&task, &loaded, losses)
    }
}

impl TaskWorker for Leader {
    type Task = LearnerTask;
    type Report = LearnerReport;
    type Config = Settings;

    const ROLE: Role = Role::Learner;

    fn pod(&self) -> &str {
        self.learner.pod()
    }

    fn replica_index(&self) -> u64 {
        self.learner.replica_index()
    }

    fn config(&self) -> Settings {
        self.learner.config()
    }

    fn configure(&mut self, settings: Settings) -> Result<()> {
        self.learner.configure(settings)
    }

    fn work(&mut self, task: LearnerTask, fallback_seed: u64) -> Result<LearnerReport> {
        let seed = task.seed.unwrap_or(fallback_seed);
        let led = self.lead(task, seed);
        if let Err(Error::RankLost { rank, source }) = &led {
            self.group.mourn(*rank, &source.to_string());
        }
        led
    }
}
