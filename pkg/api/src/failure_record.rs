use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{failure_rules::FailureAction, role::Role};

/// A failure of a pod. Failures with the same role, exit code and reason are one record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureRecord {
    /// Name of the last pod that failed.
    pub pod: String,
    /// Role of the pod.
    pub role: Role,
    /// Index of the replica. Unset for the coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<i32>,
    /// UID of the pod.
    pub uid: String,
    /// Name of the node. Unset if the pod had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Exit code of the container di-container. Unset if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Reason from the kubelet, such as Error, OOMKilled or Evicted.
    pub reason: String,
    /// Time of the last failure.
    pub at: Time,
    /// Number of failures.
    pub count: i32,
    /// Name of the failure rule that matched. Unset if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Action of the rule; FailJob if its limit was exceeded; Count without a rule.
    #[serde(default)]
    pub action: FailureAction,
    /// The last lines of the container's log, at most 2048 bytes, without control characters. Unset
    /// if spec.failureTails is false or the kubelet has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
}
