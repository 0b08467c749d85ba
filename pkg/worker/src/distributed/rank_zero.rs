use crate::{
    Error, Result,
    distributed::{connection::GroupTask, process_group::TcpProcessGroup},
    learner::{Learner, settings::Settings},
    protocol::{
        tasks::TaskWorker,
        wire::{LearnerReport, LearnerTask, Role},
    },
};

/// Rank 0: takes tasks and runs them with the other ranks.
#[derive(Debug)]
pub(super) struct RankZeroWorker {
    learner: Learner,
    group: TcpProcessGroup,
}

impl RankZeroWorker {
    pub(super) const fn new(learner: Learner, group: TcpProcessGroup) -> Self {
        Self { learner, group }
    }

    fn train_with_group(&mut self, task: LearnerTask) -> Result<LearnerReport> {
        let Self { learner, group } = self;
        let settings = learner.current_config();
        let call = GroupTask { task, settings };
        let mut loaded = group.begin_task(&call, || learner.load_task(&call.task))?;
        // Use the values after a JSON round trip, so that all ranks compute with the same numbers.
        let GroupTask { task, settings } = call.as_sent()?;
        let losses = loaded.train_model(&settings, &task, group)?;
        learner.store_model(&task, &loaded, losses)
    }
}

impl TaskWorker for RankZeroWorker {
    type Task = LearnerTask;
    type Report = LearnerReport;
    type Config = Settings;

    const ROLE: Role = Role::Learner;

    fn current_config(&self) -> Settings {
        self.learner.current_config()
    }

    fn configure(&mut self, settings: Settings) -> Result<()> {
        self.learner.configure(settings)
    }

    fn run_task(&mut self, task: LearnerTask) -> Result<LearnerReport> {
        let result = self.train_with_group(task);
        if let Err(Error::RankLost { rank, source }) = &result {
            self.group.abort(*rank, &source.to_string());
        }
        result
    }
}
