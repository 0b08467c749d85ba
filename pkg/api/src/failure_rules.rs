//! Rules for failed pods, in the shape of `podFailurePolicy` of Kubernetes Jobs.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    quantity::{NANOS_PER_UNIT, parse_nanos},
    role::Role,
};

/// A rule for failures of pods. The first rule that matches is applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureRule {
    /// Name of the rule in status.failures and messages. Default: the position, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub name: Option<String>,
    /// Roles of the pods. Aggregators and ddp learners are learners. Default: all roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RuleRole>,
    /// Exit codes of the container di-container. Evictions and other disruptions by the cluster
    /// never match. Set either this or onReasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exit_codes: Option<ExitCodes>,
    /// Reasons of the kubelet: of an ended container or pod, such as OOMKilled or Evicted, or of a
    /// container that has waited for a minute, such as ErrImagePull or CreateContainerConfigError.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_reasons: Vec<String>,
    /// Action after a failure that matches. Default: Count.
    #[serde(default)]
    pub action: FailureAction,
    /// Number of failures of one replica index, or of the coordinator, that the rule accepts. One
    /// more fails the job. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
    /// Gives later pods of the replica index, or of the coordinator, more memory. Default: unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_memory: Option<MemoryGrowth>,
}

/// Action after a failure. Count: a collector or learner is replaced with a growing delay; a
/// coordinator is restarted up to backoffLimit times. Ignore: a collector or learner is replaced
/// after 1 s; a coordinator is restarted with a growing delay, not counted. FailJob: the job fails.
/// Done: the pod counts as succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FailureAction {
    /// The failure counts, as without a rule.
    #[default]
    Count,
    /// The failure does not count.
    Ignore,
    /// The job fails.
    FailJob,
    /// The pod counts as succeeded.
    Done,
}

impl FailureAction {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::Count, Self::Ignore, Self::FailJob, Self::Done];

    /// The action as it appears in the spec, the status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Ignore => "Ignore",
            Self::FailJob => "FailJob",
            Self::Done => "Done",
        }
    }
}

/// A role that a failure rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleRole {
    /// The coordinator.
    Coordinator,
    /// Collectors.
    Collector,
    /// Learners, aggregators and ddp learners.
    Learner,
}

impl From<Role> for RuleRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Coordinator => Self::Coordinator,
            Role::Collector => Self::Collector,
            Role::Learner | Role::Aggregator | Role::DdpLearner => Self::Learner,
        }
    }
}

/// A set of exit codes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExitCodes {
    /// Name of the container, di-container. Default: di-container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// In: the exit code is one of the values. NotIn: it is none of them, and not 0.
    pub operator: ExitCodeOperator,
    /// Exit codes from 0 to 255, at most 255. With In, 0 is not allowed.
    #[schemars(length(min = 1, max = 255))]
    pub values: Vec<i32>,
}

/// How exit codes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ExitCodeOperator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
}

/// Growth of the memory of a replica after a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryGrowth {
    /// Factor for the memory of di-container, greater than 1, such as 1.5.
    pub factor: Quantity,
    /// Maximum memory, such as 64Gi.
    pub limit: Quantity,
}

impl MemoryGrowth {
    /// The memory after one more failure, rounded up to MiB. `None` if it is at its limit already,
    /// or a quantity is invalid.
    pub fn next_memory(&self, current: &Quantity) -> Option<Quantity> {
        let [current, factor, limit] =
            [current, &self.factor, &self.limit].map(|quantity| parse_nanos(&quantity.0));
        let (current, limit) = (current? / NANOS_PER_UNIT, limit? / NANOS_PER_UNIT);
        let grown = current.checked_mul(factor?)? / NANOS_PER_UNIT;
        let mebibytes = grown.checked_add(MIB - 1)? / MIB;
        let bytes = (mebibytes * MIB).min(limit);
        let quantity = match bytes % MIB {
            0 => format!("{}Mi", bytes / MIB),
            _ => bytes.to_string(),
        };
        (bytes > current).then_some(Quantity(quantity))
    }
}

const MIB: i128 = 1 << 20;

/// A failure of a pod, as far as rules need it.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// Role of the pod.
    pub role: Role,
    /// Exit code of di-container, unless the cluster disrupted the pod.
    pub exit_code: Option<i32>,
    /// Reason of the kubelet.
    pub reason: &'a str,
}

/// Reasons of the kubelet that alternate while it retries.
const ALTERNATING_REASONS: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

impl FailureRule {
    /// The name of the rule, or else its position in the list.
    pub fn name_at(&self, position: usize) -> String {
        match self.name.as_deref() {
            None | Some("") => position.to_string(),
            Some(name) => name.to_owned(),
        }
    }

    /// Whether the rule applies to pods of a role.
    pub fn applies_to(&self, role: Role) -> bool {
        self.roles.is_empty() || self.roles.contains(&role.into())
    }

    /// Whether the rule matches a failure.
    pub fn matches(&self, failure: Failure<'_>) -> bool {
        let is_code = |codes: &ExitCodes| {
            failure.exit_code.is_some_and(|code| {
                let is_listed = codes.values.contains(&code);
                match codes.operator {
                    ExitCodeOperator::In => is_listed,
                    ExitCodeOperator::NotIn => !is_listed && code != 0,
                }
            })
        };
        let is_reason = |reason: &String| {
            let alternate = ALTERNATING_REASONS.contains(&failure.reason)
                && ALTERNATING_REASONS.contains(&&**reason);
            *reason == failure.reason || alternate
        };
        self.applies_to(failure.role)
            && (self.on_exit_codes.as_ref().is_some_and(is_code)
                || self.on_reasons.iter().any(is_reason))
    }
}

/// The first rule that matches a failure, with its name.
pub fn find_rule<'a>(
    rules: &'a [FailureRule],
    failure: Failure<'_>,
) -> Option<(String, &'a FailureRule)> {
    let mut numbered = rules.iter().enumerate();
    let (position, rule) = numbered.find(|(_, rule)| rule.matches(failure))?;
    Some((rule.name_at(position), rule))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn rules(rules: Value) -> Vec<FailureRule> {
        serde_json::from_value(rules).unwrap()
    }

    #[test]
    fn first_matching_rule_is_found() {
        let rules = rules(json!([
            {"name": "config", "onExitCodes": {"operator": "In", "values": [2, 127]}, "action": "FailJob"},
            {"roles": ["collector"], "onReasons": ["OOMKilled", "ErrImagePull"]},
            {"name": "rest", "roles": ["learner"], "onExitCodes": {"operator": "NotIn", "values": [143]}},
        ]));
        for (role, exit_code, reason, expected) in [
            (Role::Coordinator, Some(2), "Error", Some("config")),
            (Role::Coordinator, Some(1), "Error", None),
            (Role::Collector, Some(137), "OOMKilled", Some("1")),
            (Role::Learner, Some(137), "OOMKilled", Some("rest")),
            (Role::Collector, None, "ImagePullBackOff", Some("1")),
            (Role::DdpLearner, Some(1), "Error", Some("rest")),
            (Role::Aggregator, Some(143), "Error", None),
            (Role::Learner, Some(0), "Completed", None),
            (Role::Learner, None, "Evicted", None),
        ] {
            let failure = Failure {
                role,
                exit_code,
                reason,
            };
            let found = find_rule(&rules, failure).map(|(name, _)| name);
            assert_eq!(found.as_deref(), expected, "{failure:?}");
        }
    }

    #[test]
    fn memory_grows_by_factor_up_to_limit() {
        let growth = |factor: &str, limit: &str| MemoryGrowth {
            factor: Quantity(factor.to_owned()),
            limit: Quantity(limit.to_owned()),
        };
        for (current, factor, limit, expected) in [
            ("32Mi", "1.5", "1Gi", Some("48Mi")),
            ("33Mi", "1.5", "1Gi", Some("50Mi")),
            ("1Gi", "2", "1536Mi", Some("1536Mi")),
            ("1G", "2", "3G", Some("1908Mi")),
            ("2G", "2", "3G", Some("3000000000")),
            ("1536Mi", "2", "1536Mi", None),
            ("4Gi", "2", "2Gi", None),
            ("1Ei", "1000000000000", "2Ei", None),
            ("x", "2", "2Gi", None),
        ] {
            let grown = growth(factor, limit).next_memory(&Quantity(current.to_owned()));
            let grown = grown.map(|memory| memory.0);
            assert_eq!(
                grown.as_deref(),
                expected,
                "{current} * {factor} <= {limit}"
            );
        }
    }

    proptest! {
        #[test]
        fn found_rule_is_the_first_that_matches(
            values in proptest::collection::vec(
                (proptest::collection::vec(0..4_i32, 1..3), any::<bool>()), 0..5),
            code in 0..4_i32,
        ) {
            let rules: Vec<_> = values.into_iter().map(|(values, is_in)| {
                let operator = if is_in { "In" } else { "NotIn" };
                json!({"onExitCodes": {"operator": operator, "values": values}})
            }).collect();
            let rules = super::tests::rules(rules.into());
            let failure = Failure { role: Role::Collector, exit_code: Some(code), reason: "Error" };
            let expected = rules.iter().position(|rule| rule.matches(failure));
            let found = find_rule(&rules, failure).map(|(name, _)| name);
            prop_assert_eq!(found, expected.map(|position| position.to_string()));
        }
    }
}
