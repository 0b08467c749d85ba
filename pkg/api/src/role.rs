use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{env, ports};

/// What a replica does in a job.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Role {
    /// Hands out tasks; its end is the job's end.
    Coordinator,
    /// Steps environments and produces data.
    Collector,
    /// Trains.
    Learner,
    /// Stands in front of the ddp learners of one logic learner.
    Aggregator,
    /// One pod of a logic learner's data-parallel training.
    #[serde(rename = "DDPLearner")]
    DdpLearner,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Coordinator,
        Self::Collector,
        Self::Learner,
        Self::Aggregator,
        Self::DdpLearner,
    ];

    /// Value of the label `replica-type`, and the part of a replica's name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Collector => "collector",
            Self::Learner => "learner",
            Self::Aggregator => "aggregator",
            Self::DdpLearner => "ddp-learner",
        }
    }

    /// The role that a value of the label `replica-type` names.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.label() == label)
    }

    /// The role under which clients ask for it and count it: an aggregator stands for a learner of several GPUs.
    #[must_use]
    pub fn counted_as(self) -> Self {
        match self {
            Self::Aggregator => Self::Learner,
            role => role,
        }
    }

    /// Key in `status.replicaStatus`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Coordinator => "Coordinator",
            Self::Collector => "Collector",
            Self::Learner => "Learner",
            Self::Aggregator => "Aggregator",
            Self::DdpLearner => "DDPLearner",
        }
    }

    /// Port of a replica whose template names none.
    pub fn default_port(self) -> i32 {
        match self {
            Self::Collector => ports::COLLECTOR,
            Self::Learner | Self::DdpLearner => ports::LEARNER,
            Self::Aggregator => ports::AGGREGATOR,
            Self::Coordinator => ports::COORDINATOR,
        }
    }

    /// Environment variable that tells a replica its own port.
    pub fn port_env(self) -> &'static str {
        match self {
            Self::Coordinator => env::COORDINATOR_PORT,
            Self::Collector => env::COLLECTOR_PORT,
            Self::Learner | Self::DdpLearner => env::LEARNER_PORT,
            Self::Aggregator => env::AGGREGATOR_PORT,
        }
    }

    /// Environment variables that its pods are given, these and no others, in this order.
    pub fn variables(self) -> impl Iterator<Item = &'static str> {
        let of_all = [
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
        of_all.into_iter().chain(index).chain(ddp.iter().copied())
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
    fn labels_lead_back_to_their_role() {
        for role in Role::ALL {
            assert_eq!(Role::from_label(role.label()), Some(role));
        }
        assert_eq!(Role::from_label("master"), None);
    }

    #[test]
    fn keys_are_what_serde_writes() {
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).unwrap(), role.key());
        }
    }
}
