use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{env, ports};

/// The role of a pod in its job: the coordinator, or that of a replica.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Role {
    /// Schedules the training; the job ends when it ends.
    Coordinator,
    /// Steps environments and produces training data.
    Collector,
    /// Trains the model.
    Learner,
    /// Connects the ddp learners of one learner group with the rest of the job.
    Aggregator,
    /// One pod of a learner group, which trains data-parallel.
    #[serde(rename = "DDPLearner")]
    DdpLearner,
}

impl Role {
    /// The roles that the spec of a job declares.
    pub const DECLARED: [Self; 3] = [Self::Coordinator, Self::Collector, Self::Learner];
    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::Coordinator,
        Self::Collector,
        Self::Learner,
        Self::Aggregator,
        Self::DdpLearner,
    ];

    /// The value of the label `replica-type`; also a part of the pod's name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Collector => "collector",
            Self::Learner => "learner",
            Self::Aggregator => "aggregator",
            Self::DdpLearner => "ddp-learner",
        }
    }

    /// Returns the role of a value of the label `replica-type`.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.label() == label)
    }

    /// The role that clients request and count: an aggregator counts as a learner.
    // See docs/decisions/0008.
    #[must_use]
    pub fn counted_as(self) -> Self {
        match self {
            Self::Aggregator => Self::Learner,
            role => role,
        }
    }

    /// The key in `status.replicaStatus`.
    pub fn status_key(self) -> &'static str {
        match self {
            Self::Coordinator => "Coordinator",
            Self::Collector => "Collector",
            Self::Learner => "Learner",
            Self::Aggregator => "Aggregator",
            Self::DdpLearner => "DDPLearner",
        }
    }

    /// The port of a replica if its template has no port named `di-port`.
    pub fn default_port(self) -> i32 {
        match self {
            Self::Collector => ports::COLLECTOR,
            Self::Learner | Self::DdpLearner => ports::LEARNER,
            Self::Aggregator => ports::AGGREGATOR,
            Self::Coordinator => ports::COORDINATOR,
        }
    }

    /// The environment variable with the replica's own port.
    pub fn port_env(self) -> &'static str {
        match self {
            Self::Coordinator => env::COORDINATOR_PORT,
            Self::Collector => env::COLLECTOR_PORT,
            Self::Learner | Self::DdpLearner => env::LEARNER_PORT,
            Self::Aggregator => env::AGGREGATOR_PORT,
        }
    }

    /// All environment variables that the orchestrator sets in pods of this role, in this order. Pods
    /// of units have [more](env::UNIT).
    pub fn env_names(self) -> impl Iterator<Item = &'static str> {
        let common = [
            env::POD_NAMESPACE,
            env::POD_NAME,
            env::SERVER_URL,
            env::SERVER_API_VERSION,
            env::COORDINATOR_URL,
            self.port_env(),
        ];
        let index = (self != Self::Coordinator).then_some(env::REPLICA_INDEX);
        let ddp: &[_] = if self == Self::DdpLearner {
            &[
                env::AGGREGATOR_URL,
                env::WORLD_SIZE,
                env::LOCAL_WORLD_SIZE,
                env::START_RANK,
                env::MASTER_ADDR,
                env::MASTER_PORT,
            ]
        } else {
            &[]
        };
        common.into_iter().chain(index).chain(ddp.iter().copied())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_label_round_trips() {
        for role in Role::ALL {
            assert_eq!(Role::from_label(role.label()), Some(role));
        }
        assert_eq!(Role::from_label("master"), None);
    }

    #[test]
    fn status_key_matches_serde_name() {
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).unwrap(), role.status_key());
        }
    }
}
