use std::time::Duration;

use di_worker_lib::{coordinator::training::Goal, environment, sampler::collector::MAX_FRAMES};

use super::duration::parse_duration;

/// Flags of the goal of a training.
#[derive(Clone, Debug, clap::Args)]
pub struct GoalArgs {
    /// Mean return of the evaluation episodes that ends the training; a target above 500 is never
    /// reached
    #[arg(long, default_value_t = environment::THRESHOLD)]
    target_return: f64,
    /// Maximum updates of the model. The learning rate decreases over them, so another maximum
    /// gives another training
    #[arg(long, default_value_t = 150)]
    max_iterations: u64,
    /// Collector tasks per iteration, 1 to 1024. Commands of one process collect the frames of all
    /// tasks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    tasks: u16,
    /// Frames per collector task, 1 to 100000. With a coordinator, all tasks together may have
    /// 1048576 frames
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frames_per_task: u32,
    /// Evaluation episodes per iteration, 1 to 10000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    evaluation_episodes: u32,
    /// Collect frames while the next model is trained: faster, but frames are one version behind.
    /// Commands of one
    /// process collect with the weights of each gradient step, in parallel with the learner unless
    /// in serial mode
    #[arg(long)]
    overlap: bool,
    /// Minimum time per iteration, to watch a short training
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    pace: Duration,
}

impl GoalArgs {
    /// Checks that a learner can train on all frames of an iteration.
    pub fn check_frames(&self) -> Result<(), String> {
        let (tasks, frames) = (self.tasks, self.frames_per_task);
        let all = u64::from(tasks) * u64::from(frames);
        if all <= MAX_FRAMES as u64 {
            return Ok(());
        }
        Err(format!(
            "--tasks {tasks} times --frames-per-task {frames} is {all} frames, but a learner takes at most {MAX_FRAMES}: reduce one of them"
        ))
    }

    /// The goal of the flags, with a seed.
    pub fn to_goal(&self, seed: u64) -> Goal {
        Goal {
            target_return: self.target_return,
            max_iterations: self.max_iterations,
            tasks: usize::from(self.tasks),
            frames_per_task: self.frames_per_task as usize,
            evaluation_episodes: self.evaluation_episodes as usize,
            seed,
            overlap: self.overlap,
            pace: self.pace,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use di_worker_lib::coordinator::Options;

    use super::{
        super::{Args, Command},
        *,
    };

    /// The goals of all commands with these flags.
    fn parse_goals(line: &str) -> [Goal; 3] {
        ["coordinator", "serial", "trial --seed=0"].map(|command| {
            let line = format!("di-worker {command} {line}");
            match Args::parse_from(line.split_whitespace()).command {
                Command::Coordinator(args) => Options::from(args).goal,
                Command::Serial { seed, alone } | Command::Trial { seed, alone } => {
                    alone.goal.to_goal(seed)
                }
                _ => panic!("another command"),
            }
        })
    }

    #[test]
    fn target_defaults_to_gymnasium_threshold() {
        for (line, target) in [("", 475.0), ("--target-return 80.5", 80.5)] {
            for goal in parse_goals(line) {
                assert!((goal.target_return - target).abs() < 1e-9, "{line}");
            }
        }
    }

    #[test]
    fn too_many_frames_are_rejected_early() {
        let read = |line: &str| {
            Args::try_parse_from(line.split_whitespace())
                .unwrap()
                .validated()
        };
        let many = "--tasks 16 --frames-per-task 100000";
        let error = read(&format!("di-worker coordinator {many}")).unwrap_err();
        assert!(error.to_string().contains("1600000 frames"), "{error}");
        assert!(read("di-worker coordinator --tasks 10 --frames-per-task 100000").is_ok());
        assert!(read(&format!("di-worker serial {many}")).is_ok());
    }

    #[test]
    fn standalone_commands_have_coordinator_flags() {
        let line = "--max-iterations 7 --tasks 2 --frames-per-task 64 --evaluation-episodes 5 --overlap --pace 3s";
        for goal in parse_goals(line) {
            let numbers = (goal.max_iterations, goal.tasks, goal.frames_per_task);
            assert_eq!(numbers, (7, 2, 64));
            let (episodes, pace) = (goal.evaluation_episodes, goal.pace);
            assert_eq!((episodes, pace), (5, Duration::from_secs(3)));
            assert!(goal.overlap);
        }
    }
}
