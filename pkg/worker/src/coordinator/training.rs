//! The training loop: collect and evaluate, train, repeat.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    Result,
    checkpoint::{CheckpointStore, run::Run},
    coordinator::{
        dispatch::{DispatchContext, dispatch_tasks},
        progress::Progress,
    },
    environment::{self, mix_seeds},
    lifecycle::{Stats, TaskReport},
    protocol::wire::{CollectorReport, CollectorTask, LearnerReport, LearnerTask, Role, Work},
};

/// Number of evaluation tasks, so that collectors share them.
const EVALUATION_TASKS: usize = 4;

/// The goal of a training.
#[derive(Clone, Debug)]
pub struct Goal {
    /// Mean return over the evaluation episodes that counts as solved.
    pub target_return: f64,
    /// Maximum updates of the model. The learning rate and other schedules decrease over them.
    pub max_iterations: u64,
    /// Collector tasks per iteration.
    pub tasks: usize,
    /// Frames per collector task.
    pub frames_per_task: usize,
    /// Evaluation episodes per iteration.
    pub evaluation_episodes: usize,
    /// Seed of all randomness, on any replica.
    pub seed: u64,
    /// Collect with the current model while the next one is trained, so frames are one version
    /// behind.
    pub overlap: bool,
    /// Minimum time per iteration, to watch or disturb a short training.
    pub pace: Duration,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            target_return: environment::THRESHOLD,
            max_iterations: 150,
            tasks: 4,
            frames_per_task: 512,
            evaluation_episodes: 100,
            seed: 0,
            overlap: false,
            pace: Duration::ZERO,
        }
    }
}

/// The stored state of a training.
#[derive(Debug)]
pub struct Stored {
    /// Its models and frames.
    pub run: Run,
    /// Its checkpoints.
    pub store: CheckpointStore,
}

/// Trains until the goal is reached (true) or the iterations are used up (false).
pub async fn run_training(
    goal: &Goal,
    ctx: DispatchContext<'_>,
    Stored { run, store }: &mut Stored,
    progress: &watch::Sender<Progress>,
) -> Result<bool> {
    let mut frames = progress.borrow().frames;
    // Frame files that were collected ahead.
    let mut ahead = None;
    // The stats of the last learner report.
    let mut stats = Stats::new();
    loop {
        let iteration = run.model_version();
        let start = Instant::now();
        let seed = mix_seeds(goal.seed, iteration);
        let last = iteration >= goal.max_iterations;
        run.begin_frames()?;
        if goal.overlap && ahead.is_none() && !last {
            // At the start there is no previous model.
            let tasks = collector_tasks(goal, run, mix_seeds(seed, u64::MAX - 1));
            let tasks = &tasks[..goal.tasks];
            let reports: Vec<CollectorReport> = dispatch_tasks(ctx, Role::Collector, tasks).await?;
            frames += frames_of(&reports);
            ahead = Some(paths_of(&reports));
        }
        let tasks = collector_tasks(goal, run, seed);
        let collecting = dispatch_tasks(ctx, Role::Collector, &tasks);
        let (reports, mut learned): (Vec<CollectorReport>, _) = match ahead.take().filter(|_| !last)
        {
            Some(frames) => {
                let task = [learner_task(goal, run, frames)];
                let learning = dispatch_tasks::<_, LearnerReport>(ctx, Role::Learner, &task);
                tokio::try_join!(collecting, learning)?
            }
            None => (collecting.await?, Vec::new()),
        };
        let (collected, evaluated) = reports.split_at(goal.tasks);

        let new_frames = frames_of(collected);
        frames += new_frames;
        let evaluation = mean_return(evaluated);
        let solved = evaluation.is_some_and(|evaluation| evaluation >= goal.target_return);
        progress.send_modify(|progress| {
            progress.iteration = iteration;
            progress.frames = frames;
            // A long episode may not end in an iteration; an older mean would look current.
            progress.mean_return = mean_return(collected);
            progress.evaluation = evaluation;
            progress.frames_per_second = new_frames as f64 / start.elapsed().as_secs_f64();
            tracing::info!("{}", progress.log_line());
        });
        stats.extend(progress.borrow().stats());
        ctx.gate.set_stats(stats);
        if solved || last {
            for report in learned {
                run.remove_model(&report.model_path);
            }
            return Ok(solved);
        }

        let paths = paths_of(collected);
        if goal.overlap {
            ahead = Some(paths);
        } else {
            let task = [learner_task(goal, run, paths)];
            learned = dispatch_tasks(ctx, Role::Learner, &task).await?;
        }
        stats = Stats::new();
        for report in learned {
            stats = report.stats();
            run.set_model(report.model_path, report.model_version, goal.overlap);
            let mean_return = progress.borrow().mean_return;
            store.record_progress(frames, mean_return, || run.model());
        }
        tokio::time::sleep(goal.pace.saturating_sub(start.elapsed())).await;
    }
}

/// The learner task of an iteration.
fn learner_task(goal: &Goal, run: &Run, frames: Vec<PathBuf>) -> LearnerTask {
    let iteration = run.model_version();
    LearnerTask {
        run: run.folder().to_owned(),
        frames,
        model_path: run.model_path().to_owned(),
        progress: iteration as f64 / goal.max_iterations as f64,
        seed: mix_seeds(mix_seeds(goal.seed, iteration), u64::MAX),
    }
}

fn frames_of(reports: &[CollectorReport]) -> u64 {
    reports.iter().map(|report| report.frames).sum()
}

fn paths_of(reports: &[CollectorReport]) -> Vec<PathBuf> {
    let paths = reports.iter().map(|report| report.path.clone());
    paths.flatten().collect()
}

/// The tasks of an iteration: collecting tasks first, then evaluation tasks.
fn collector_tasks(goal: &Goal, run: &Run, seed: u64) -> Vec<CollectorTask> {
    let collect = (0..goal.tasks).map(|_| Work::Collect {
        frames: goal.frames_per_task,
    });
    let evaluate = (0..EVALUATION_TASKS).map(|task| {
        let share = |task| goal.evaluation_episodes * task / EVALUATION_TASKS;
        Work::Evaluate {
            episodes: share(task + 1) - share(task),
        }
    });
    let works = collect.chain(evaluate.filter(|work| *work != Work::Evaluate { episodes: 0 }));
    (0..)
        .zip(works)
        .map(|(index, work)| CollectorTask {
            run: run.folder().to_owned(),
            model_path: run.model_path().to_owned(),
            seed: mix_seeds(seed, index),
            work,
        })
        .collect()
}

/// Mean over all episodes of all reports.
fn mean_return(reports: &[CollectorReport]) -> Option<f64> {
    let episodes: u64 = reports.iter().map(|report| report.episodes).sum();
    let sum: f64 = reports
        .iter()
        .map(|report| report.mean_return * report.episodes as f64)
        .sum();
    (episodes > 0).then(|| sum / episodes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_return_weighs_episodes() {
        let report = |episodes, mean_return| CollectorReport {
            episodes,
            mean_return,
            ..CollectorReport::default()
        };
        assert_eq!(
            mean_return(&[report(1, 100.0), report(3, 20.0), report(0, 0.0)]),
            Some(40.0)
        );
        assert_eq!(mean_return(&[report(0, 0.0)]), None);
    }
}
