//! The wire format: bodies of the replica endpoint, and tasks and reports of this workload.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    learner::ppo::Losses,
    lifecycle::report::{PollResult, Stats, TaskReport},
};

/// The roles of replicas that get tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Collects frames.
    Collector,
    /// Trains on frames.
    Learner,
}

impl Role {
    /// The name in JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Collector => "collector",
            Self::Learner => "learner",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The response of the replica endpoint and of the life-cycle routes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Whether the request succeeded.
    pub success: bool,
    /// 0 or 1.
    #[serde(default)]
    pub code: i64,
    /// The error message.
    #[serde(default)]
    pub message: String,
    /// The result; undefined unless `success`.
    #[serde(default)]
    pub data: serde_json::Value,
}

impl Envelope {
    /// A successful response.
    pub const fn new_success(data: serde_json::Value) -> Self {
        Self {
            success: true,
            code: 0,
            message: String::new(),
            data,
        }
    }

    /// A failed response.
    pub const fn new_failure(message: String, data: serde_json::Value) -> Self {
        Self {
            success: false,
            code: 1,
            message,
            data,
        }
    }
}

/// The replicas of one coordinator, as `pod.namespace:port`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// Namespace of the job.
    pub namespace: String,
    /// Pod name of the coordinator.
    pub coordinator: String,
    /// Collectors.
    #[serde(default)]
    pub collectors: Vec<String>,
    /// Learners; an aggregator represents its ddp learners.
    #[serde(default)]
    pub learners: Vec<String>,
}

/// A task for a collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectorTask {
    /// Folder of the run.
    pub run: PathBuf,
    /// File of the model.
    pub model_path: PathBuf,
    /// Seed of all randomness.
    pub seed: u64,
    /// The mode.
    #[serde(flatten)]
    pub work: Work,
}

/// The modes of a collector task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum Work {
    /// Sample with drawn actions and store the frames.
    Collect {
        /// Number of frames.
        frames: usize,
    },
    /// Play whole episodes with the most likely actions; nothing is stored.
    Evaluate {
        /// Number of episodes.
        episodes: usize,
    },
}

/// The report of a collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CollectorReport {
    /// The frame file, if frames were collected.
    pub path: Option<PathBuf>,
    /// Number of steps.
    pub frames: u64,
    /// Number of ended episodes.
    pub episodes: u64,
    /// Mean return of the episodes; 0 without any.
    pub mean_return: f64,
    /// Version of the model.
    pub model_version: u64,
}

/// A task for a learner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnerTask {
    /// Folder of the run.
    pub run: PathBuf,
    /// Frame files.
    pub frames: Vec<PathBuf>,
    /// File of the model.
    pub model_path: PathBuf,
    /// Progress of the training, in 0..=1; the learning rate decreases with it.
    pub progress: f64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// The report of a learner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnerReport {
    /// File of the new model.
    pub model_path: PathBuf,
    /// Its version.
    pub model_version: u64,
    /// Frames trained on.
    pub frames: u64,
    /// Mean loss of the actor.
    pub policy_loss: f64,
    /// Mean loss of the critic.
    pub value_loss: f64,
    /// Mean entropy of the actor.
    pub entropy: f64,
}

/// Whether an HTTP status means a bad task, which no replica can run.
pub const fn is_bad_task_status(status: u16) -> bool {
    matches!(status, 400 | 422)
}

/// HTTP status of a paused replica that rejects a task.
pub const TAKES_NO_TASK: u16 = 503;

impl TaskReport for CollectorReport {
    fn poll_result(&self) -> PollResult {
        PollResult {
            samples: self.frames,
            batches: u64::from(self.path.is_some()),
        }
    }

    fn stats(&self) -> Stats {
        let ended = (self.episodes > 0).then(|| ("mean_return".into(), self.mean_return));
        let counts = [
            ("episodes".into(), self.episodes as f64),
            ("model_version".into(), self.model_version as f64),
        ];
        counts.into_iter().chain(ended).collect()
    }
}

impl TaskReport for LearnerReport {
    fn poll_result(&self) -> PollResult {
        PollResult {
            samples: self.frames,
            batches: 1,
        }
    }

    fn stats(&self) -> Stats {
        let losses = Losses {
            policy: self.policy_loss,
            value: self.value_loss,
            entropy: self.entropy,
        };
        let mut stats = losses.stats();
        stats.insert("model_version".into(), self.model_version as f64);
        stats
    }
}

/// The error response to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The error with its causes.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn envelope_is_parsed_with_and_without_data() {
        let no: Envelope =
            from_value(json!({"success": false, "code": 1, "message": "later", "data": null}))
                .unwrap();
        assert!(!no.success && no.data.is_null());
        let data = json!({"namespace": "rl", "coordinator": "c", "collectors": ["a.rl:1"], "learners": []});
        let yes: Envelope =
            from_value(json!({"success": true, "code": 0, "message": "", "data": data})).unwrap();
        let replicas: Replicas = from_value(yes.data).unwrap();
        assert_eq!(replicas.collectors, ["a.rl:1"]);
        assert!(replicas.learners.is_empty());
    }

    #[test]
    fn mean_return_is_missing_without_episodes() {
        let mut report = CollectorReport::default();
        assert!(!report.stats().contains_key("mean_return"));
        (report.episodes, report.mean_return) = (2, -120.0);
        assert_eq!(report.stats()["mean_return"].to_string(), "-120");
    }

    #[test]
    fn task_json_names_mode() {
        let task = CollectorTask {
            run: "/storage/rl/pole/run".into(),
            model_path: "/storage/rl/pole/run/model-3.safetensors".into(),
            seed: 7,
            work: Work::Collect { frames: 256 },
        };
        let body = json!({
            "run": "/storage/rl/pole/run", "seed": 7, "mode": "collect", "frames": 256,
            "model_path": "/storage/rl/pole/run/model-3.safetensors"
        });
        assert_eq!(to_value(&task).unwrap(), body);
        assert_eq!(from_value::<CollectorTask>(body).unwrap(), task);
    }
}
