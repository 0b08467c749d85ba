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
    environment::{Game, seeds::mix_seeds},
    lifecycle::{Stats, TaskReport},
    protocol::wire::{CollectorReport, CollectorTask, LearnerReport, LearnerTask, Role, Work},
    storage::blocking::BlockingCell,
};

/// Number of evaluation tasks, so that collectors share them.
const EVALUATION_TASKS: usize = 4;

/// The goal of a training.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The environment.
    pub game: Game,
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

impl Goal {
    /// The default goal of a game: Gymnasium's threshold.
    pub const fn for_game(game: Game) -> Self {
        Self {
            game,
            target_return: game.rules().threshold,
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

impl Default for Goal {
    fn default() -> Self {
        Self::for_game(Game::default())
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
    stored: &BlockingCell<Stored>,
    progress: &watch::Sender<Progress>,
) -> Result<bool> {
    let names = |role| {
        ctx.replicas
            .ready_replicas(role)
            .into_iter()
            .map(|ready| ready.address.pod)
            .collect::<Vec<_>>()
    };
    let mut frames = progress.borrow().frames;
    // Frame files that were collected ahead.
    let mut ahead = None;
    // The stats of the last learner report.
    let mut stats = Stats::new();
    loop {
        let iteration = stored.read_value(|stored| stored.run.model_version()).await;
        let start = Instant::now();
        let seed = mix_seeds(goal.seed, iteration);
        let last = iteration >= goal.max_iterations;
        let overlap = goal.overlap;
        let begin = stored.run_exclusive(move |stored| stored.run.begin_frames(overlap));
        begin.await?;
        if goal.overlap && ahead.is_none() && !last {
            // At the start there is no previous model.
            let seed = mix_seeds(seed, u64::MAX - 1);
            let tasks = stored.read_value(|stored| collector_tasks(goal, &stored.run, seed));
            let tasks = tasks.await;
            let tasks = &tasks[..goal.tasks];
            let reports: Vec<CollectorReport> = dispatch_tasks(ctx, Role::Collector, tasks).await?;
            frames += frames_of(&reports);
            ahead = Some(paths_of(&reports));
        }
        let tasks = stored.read_value(|stored| collector_tasks(goal, &stored.run, seed));
        let tasks = tasks.await;
        let collecting = dispatch_tasks(ctx, Role::Collector, &tasks);
        let (reports, learned): (Vec<CollectorReport>, _) = match ahead.take().filter(|_| !last) {
            Some(frames) => {
                let task = [learner_task(goal, stored, iteration, frames).await];
                let learning = dispatch_tasks::<_, LearnerReport>(ctx, Role::Learner, &task);
                let (reports, learned) = tokio::try_join!(collecting, learning)?;
                (reports, Some(learned))
            }
            None => (collecting.await?, None),
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
            progress.collectors = names(Role::Collector);
            progress.learners = names(Role::Learner);
            progress.solved = solved;
            tracing::info!("{}", progress.log_line());
        });
        stats.extend(progress.borrow().stats());
        ctx.gate.set_stats(stats.clone());
        let noted = stats.clone();
        let note = move |Stored { store, .. }: &mut Stored| {
            store.record_iteration(iteration, &noted);
            Ok(())
        };
        stored.run_exclusive(note).await?;
        if solved || last {
            for report in learned.into_iter().flatten() {
                let discard = move |Stored { run, .. }: &mut Stored| {
                    run.discard_model(&report.model_path);
                    Ok(())
                };
                stored.run_exclusive(discard).await?;
            }
            return Ok(solved);
        }

        let paths = paths_of(collected);
        let learned = if let Some(learned) = learned {
            ahead = Some(paths);
            learned
        } else {
            let task = learner_task(goal, stored, iteration, paths).await;
            dispatch_tasks(ctx, Role::Learner, &[task]).await?
        };
        for report in learned {
            stats = report.stats();
            progress.send_modify(|progress| progress.staleness += report.staleness);
            let progress = progress.borrow().clone();
            let advance = move |Stored { run, store }: &mut Stored| {
                if report.frames == 0 {
                    // All frames were too old. With overlap, the frames just collected are not.
                    return Ok(());
                }
                run.set_model(report.model_path, report.model_version)?;
                store.record_progress(progress.frames, progress.mean_return, || run.model());
                Ok(())
            };
            stored.run_exclusive(advance).await?;
        }
        tokio::time::sleep(goal.pace.saturating_sub(start.elapsed())).await;
    }
}

/// The learner task of an iteration.
async fn learner_task(
    goal: &Goal,
    stored: &BlockingCell<Stored>,
    iteration: u64,
    frames: Vec<PathBuf>,
) -> LearnerTask {
    let task = |Stored { run, .. }: &Stored| LearnerTask {
        game: goal.game,
        run: run.folder().to_owned(),
        frames,
        model_version: run.model_version(),
        model_path: run.model_path().to_owned(),
        progress: iteration as f64 / goal.max_iterations as f64,
        seed: Some(mix_seeds(mix_seeds(goal.seed, iteration), u64::MAX)),
    };
    stored.read_value(task).await
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
            game: goal.game,
            run: run.folder().to_owned(),
            model_version: run.model_version(),
            model_path: run.model_path().to_owned(),
            seed: Some(mix_seeds(seed, index)),
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
