use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pod_template::PodTemplate;

/// Replicas of several pods. The first pod of each, the leader, has the address of the replica. All
/// pods of a unit have one index, and are created, counted and removed together.
// See docs/decisions/0040.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitSpec {
    /// Number of pods in each replica, from 1 to 64. Required.
    #[schemars(range(min = 1, max = crate::names::MAX_UNIT_SIZE))]
    pub size: i32,
    /// Pod template of the leader. Its port di-port is the port of the whole unit. Default: the
    /// template of the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_template: Option<PodTemplate>,
    /// What replaces a lost pod. Unit: a new unit. Pod: a new pod in the same unit, except for the
    /// leader, whose loss always replaces the unit. Default: Unit.
    #[serde(default, skip_serializing_if = "UnitRestart::is_default")]
    pub restart: UnitRestart,
    /// Label of nodes: all pods of a unit run on nodes with the same value of it. Default: empty,
    /// on any nodes.
    #[serde(
        default,
        deserialize_with = "crate::dijob::null_as_empty",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 316))]
    pub topology_key: String,
    /// When the pods of a unit are created. Together: at once. LeaderFirst: the others once the
    /// leader has a node. Default: Together.
    #[serde(default, skip_serializing_if = "UnitStart::is_default")]
    pub start: UnitStart,
}

/// What replaces a lost pod of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum UnitRestart {
    /// A new unit.
    #[default]
    Unit,
    /// A new pod in the same unit, except for the leader.
    Pod,
}

impl UnitRestart {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// When the pods of a unit are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum UnitStart {
    /// All at once.
    #[default]
    Together,
    /// The leader first, the others once it has a node.
    LeaderFirst,
}

impl UnitStart {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Place of a pod in its unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitPlace {
    /// Name of the leader. Unset for the leader itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Position in the unit; that of the leader is 0.
    pub index: i32,
    /// Number of pods in the unit.
    pub size: i32,
}

impl UnitPlace {
    /// Returns the place of the leader of a unit.
    pub fn of_leader(size: i32) -> Self {
        Self {
            leader: None,
            index: 0,
            size,
        }
    }
}
