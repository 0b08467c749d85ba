use std::{ops::ControlFlow, time::Instant};

use crate::{
    Error, Result,
    checkpoint::{Checkpoint, Keeper},
    coordinator::Outcome,
    life::{Polled, Stats},
    model::Model,
    ppo::{Losses, Settings},
    progress::Progress,
    rollout::{Rollout, Trajectory},
    sampler::{Lesson, Maker, Order, Running},
    sampling::Sampling,
    server::mix,
    staleness::Staleness,
    training::Goal,
    wire::Work,
};

/// Starts the components, says what is sampled and learned when, and tells how it goes.
pub(super) struct Runner {
    goal: Goal,
    settings: Settings,
    running: Running,
    keeper: Option<Keeper>,
    at: Checkpoint,
    /// What was collected while the model of before was trained.
    ahead: Option<Collected>,
    statistics: Statistics,
}

/// What a version of the model has played.
struct Collected {
    version: u64,
    rollout: Rollout,
}

/// What components tell.
#[derive(Debug, Default)]
struct Statistics {
    evaluation: Option<f64>,
    losses: Option<Losses>,
    gradient_steps: u64,
    frames_per_second: Option<f64>,
    staleness: Staleness,
}

impl Runner {
    /// One that goes on from where the keeper has it.
    pub(super) fn begin(
        goal: Goal,
        settings: Settings,
        (sampling, maker): (&Sampling, &Maker),
        keeper: Option<Keeper>,
    ) -> Result<Self> {
        let found = match &keeper {
            Some(keeper) => keeper.newest()?,
            None => None,
        };
        sampling.check()?;
        Ok(Self {
            at: found.unwrap_or_else(|| Checkpoint::first(goal.game, goal.seed)),
            running: Running::start(sampling, maker, true)?,
            goal,
            settings,
            keeper,
            ahead: None,
            statistics: Statistics::default(),
        })
    }

    /// Evaluates the model, and makes it the next version unless the training has ended.
    pub(super) fn iterate(&mut self) -> Result<ControlFlow<Outcome, Polled>> {
        let evaluation = self.evaluate()?;
        self.statistics.evaluation = Some(evaluation);
        tracing::info!("{}", self.line());
        if evaluation >= self.goal.target_return {
            return Ok(ControlFlow::Break(Outcome::Solved));
        }
        if self.at.model.version >= self.goal.max_iterations {
            return Ok(ControlFlow::Break(Outcome::Unsolved));
        }
        let before = self.at.frames;
        self.improve()?;
        let at = &self.at;
        if let Some(keeper) = &mut self.keeper {
            keeper.reached(at.frames, at.mean_return, || Ok(at.model.clone()));
        }
        Ok(ControlFlow::Continue(Polled {
            samples: at.frames - before,
            batches: 1,
        }))
    }

    /// Keeps what is to be gone on from; tells where it ended.
    pub(super) fn end(&mut self, outcome: Outcome) -> Result<(Model, Progress)> {
        let Self { keeper, at, .. } = self;
        match keeper {
            Some(keeper) if outcome == Outcome::Interrupted => {
                keeper.save(|| Ok(at.model.clone()))?;
            }
            Some(keeper) => keeper.clear()?,
            None => {}
        }
        let end = Progress {
            iteration: at.model.version,
            frames: at.frames,
            evaluation: self.statistics.evaluation,
            ..Progress::default()
        };
        Ok((at.model.clone(), end))
    }

    /// All that is told of it.
    pub(super) fn stats(&self) -> Stats {
        let (at, statistics) = (&self.at, &self.statistics);
        let counts = [
            ("iteration", at.model.version),
            ("frames", at.frames),
            ("gradient_steps", statistics.gradient_steps),
        ];
        let counts = counts.map(|(name, count)| (name, Some(count as f64)));
        let means = [
            ("mean_return", at.mean_return),
            ("evaluation", statistics.evaluation),
            ("frames_per_second", statistics.frames_per_second),
        ];
        let all = counts.into_iter().chain(means);
        let mut stats: Stats = all
            .filter_map(|(name, value)| Some((name.into(), value?)))
            .collect();
        stats.extend(statistics.losses.iter().flat_map(Losses::stats));
        stats.extend(statistics.staleness.stats());
        stats
    }

    fn line(&self) -> String {
        let (at, statistics) = (&self.at, &self.statistics);
        let progress = Progress {
            iteration: at.model.version,
            frames: at.frames,
            mean_return: at.mean_return,
            evaluation: statistics.evaluation,
            frames_per_second: statistics.frames_per_second.unwrap_or_default(),
            ..Progress::default()
        };
        progress.numbers()
    }

    /// Mean return of the model.
    fn evaluate(&mut self) -> Result<f64> {
        let episodes = self.goal.evaluation_episodes;
        let policy = &self.at.model.policy;
        let seed = mix(mix(self.goal.seed, self.at.model.version), 1);
        let order = Order::new(policy, Work::Evaluate { episodes }, seed)?;
        self.running.begin(order);
        self.running.finish()?;
        Ok(mean(&self.running.evaluated().returns).unwrap_or_default())
    }

    /// Makes the model the next version.
    fn improve(&mut self) -> Result<()> {
        let start = Instant::now();
        let Rollout {
            trajectories,
            returns,
        } = self.rollout()?;
        let frames = frames(&trajectories);
        let lesson = self.lesson(trajectories);
        let version = lesson.model.version;
        if self.goal.overlap {
            // It begins before the first gradient step, and goes on with the weights of each.
            let order = self.collecting(version + 1)?;
            self.running.begin(order);
        }
        self.running.teach(lesson);
        self.running.finish()?;
        if self.goal.overlap {
            let rollout = self.running.collected();
            self.ahead = Some(Collected { version, rollout });
        }
        let learned = self.running.learned().ok_or(Error::TaskLeft)?;
        let statistics = &mut self.statistics;
        statistics.losses = Some(learned.losses);
        statistics.gradient_steps += learned.steps;
        statistics.frames_per_second = Some(frames as f64 / start.elapsed().as_secs_f64());
        self.at.model = learned.model;
        self.at.frames += frames;
        // In a good iteration no episode may end: then the last known number stands.
        self.at.mean_return = mean(&returns).or(self.at.mean_return);
        Ok(())
    }

    /// What the model learns from: what was collected ahead unless it is too old, else what it collects now.
    fn rollout(&mut self) -> Result<Rollout> {
        let version = self.at.model.version;
        if let Some(Collected {
            version: of,
            rollout,
        }) = self.ahead.take()
        {
            let (frames, most) = (frames(&rollout.trajectories), self.settings.max_policy_lag);
            if self.statistics.staleness.admit(frames, version - of, most) {
                return Ok(rollout);
            }
        }
        let order = self.collecting(version)?;
        self.running.begin(order);
        self.running.finish()?;
        Ok(self.running.collected())
    }

    fn lesson(&self, trajectories: Vec<Trajectory>) -> Lesson {
        let model = self.at.model.clone();
        let iterations = self.goal.max_iterations.max(1);
        Lesson {
            progress: model.version as f64 / iterations as f64,
            seed: mix(mix(self.goal.seed, model.version), u64::MAX),
            model,
            trajectories,
            settings: self.settings.clone(),
            steps: 0,
            losses: Losses::default(),
        }
    }

    /// What is collected for a version to learn from.
    fn collecting(&self, version: u64) -> Result<Order> {
        let frames = self.goal.tasks * self.goal.frames_per_task;
        let seed = mix(mix(self.goal.seed, version), 0);
        Order::new(&self.at.model.policy, Work::Collect { frames }, seed)
    }
}

fn frames(trajectories: &[Trajectory]) -> u64 {
    let all = trajectories.iter();
    all.map(|part| part.actions.len() as u64).sum()
}

fn mean(returns: &[f64]) -> Option<f64> {
    let sum = returns.iter().sum::<f64>();
    (!returns.is_empty()).then(|| sum / returns.len() as f64)
}
