//! The size of the measurements.

use std::time::Duration;

/// Longer than anything here takes unless something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Sizes and repetitions.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Repetitions of what takes long.
    pub repetitions: usize,
    /// Repetitions of single answers.
    pub answers: usize,
    /// How many replicas one request asks for.
    pub requested: Vec<usize>,
    /// The most replicas that the throttled original is measured with.
    pub throttled: usize,
    /// How many replicas go, or are reported, in one request.
    pub removed: Vec<usize>,
    /// Pods cached.
    pub cached: Vec<usize>,
    /// Clients at a time.
    pub clients: Vec<usize>,
    /// Connections that reviews come by at a time.
    pub reviewers: Vec<usize>,
    /// Creates through an API server.
    pub creates: usize,
    /// How long one closed loop runs.
    pub closed_loop: Duration,
    /// Jobs of ten pods in the namespace that is listed whole.
    pub listed_jobs: Vec<usize>,
    /// Coordinators that poll once a second.
    pub pollers: Vec<usize>,
    /// How long they do.
    pub storm: Duration,
    /// Pods of jobs on the API server, for the memory.
    pub remembered: Vec<usize>,
    /// Numbers of pods with which everything is relisted.
    pub relisted: usize,
    /// Pods that are no jobs', for the memory.
    pub foreign: usize,
    /// Jobs that are created at the same time.
    pub burst: Vec<usize>,
    /// How often they are.
    pub bursts: usize,
    /// Jobs that are created one call after the other, as the original does.
    pub throttled_burst: usize,
    /// Jobs that are created one at a time.
    pub single_jobs: usize,
    /// Jobs that a manager finds as it starts.
    pub cold_jobs: usize,
    /// Jobs whose pods change all the time.
    pub churned_jobs: usize,
    /// How often one of them does.
    pub changes: usize,
    /// How long nothing happens.
    pub idle: Duration,
    /// Collectors of a job that grows large.
    pub large_job: usize,
    /// How many of those, one after the other.
    pub large_rounds: usize,
    /// Small jobs before each of them.
    pub small_jobs: usize,
    /// Jobs that live through faults.
    pub recovering_jobs: usize,
    /// How often each fault comes.
    pub recoveries: usize,
    /// Jobs that the plugin shows.
    pub shown: usize,
    /// How often programs are started.
    pub started: usize,
    /// Signals from one thread to another and back.
    pub signals: u64,
    /// Frames that are played in a slow environment.
    pub slow_frames: usize,
    /// How long a sampler plays before it is measured.
    pub warm: Duration,
    /// How long it plays then.
    pub sampled: Duration,
}

impl Scale {
    /// The size for the documentation.
    pub fn full() -> Self {
        Self {
            repetitions: 5,
            answers: 100,
            requested: vec![1, 10, 100, 500],
            throttled: 100,
            removed: vec![10, 100],
            cached: vec![1_000, 10_000, 50_000],
            clients: vec![1, 8, 64],
            reviewers: vec![1, 8, 64, 500],
            creates: 200,
            closed_loop: Duration::from_millis(800),
            listed_jobs: vec![10, 100, 1000],
            pollers: vec![250, 1000],
            storm: Duration::from_secs(5),
            remembered: vec![1_000, 10_000, 50_000],
            relisted: 10_000,
            foreign: 10_000,
            burst: vec![200, 1000],
            bursts: 3,
            throttled_burst: 20,
            single_jobs: 100,
            cold_jobs: 1000,
            churned_jobs: 200,
            changes: 10_000,
            // Longer than a watch lasts.
            idle: Duration::from_secs(75),
            large_job: 1000,
            large_rounds: 3,
            small_jobs: 30,
            recovering_jobs: 100,
            recoveries: 5,
            shown: 1_000,
            started: 20,
            signals: 200_000,
            slow_frames: 10_000,
            warm: Duration::from_secs(2),
            sampled: Duration::from_secs(5),
        }
    }

    /// Enough to see that everything works.
    pub fn quick() -> Self {
        Self {
            repetitions: 1,
            answers: 2,
            requested: vec![1, 100],
            throttled: 1,
            removed: vec![100],
            listed_jobs: vec![1000],
            pollers: vec![1000],
            cached: vec![1_000, 10_000],
            clients: vec![8],
            reviewers: vec![8],
            creates: 50,
            closed_loop: Duration::from_millis(300),
            storm: Duration::from_secs(2),
            remembered: vec![1_000, 3_000],
            relisted: 1_000,
            foreign: 1_000,
            burst: vec![50],
            bursts: 1,
            throttled_burst: 5,
            single_jobs: 20,
            cold_jobs: 100,
            churned_jobs: 50,
            changes: 1_000,
            idle: Duration::from_secs(5),
            large_job: 300,
            large_rounds: 1,
            small_jobs: 15,
            recovering_jobs: 20,
            recoveries: 1,
            shown: 1_000,
            started: 3,
            signals: 50_000,
            slow_frames: 4_000,
            warm: Duration::from_millis(500),
            sampled: Duration::from_secs(1),
        }
    }
}
