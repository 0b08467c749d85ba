use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::Reason;

/// Types of a job's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionType {
    /// The coordinator has been created.
    Created,
    /// The coordinator runs.
    Running,
    /// The job ended with success.
    Succeeded,
    /// The job ended with failure.
    Failed,
    /// The job is held and no pod of it is left.
    Suspended,
    /// Every planned replica is ready.
    ReplicasReady,
}

impl ConditionType {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Suspended,
        Self::ReplicasReady,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
            Self::ReplicasReady => "ReplicasReady",
        }
    }
}

/// The condition of this type, if it was ever set.
pub fn condition(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == type_.as_str())
}

/// Whether the condition of this type is True.
pub fn is_true(conditions: &[Condition], type_: ConditionType) -> bool {
    condition(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Sets a condition. Its transition time moves only when its status flips, so that setting it again changes nothing.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: ConditionType,
    status: bool,
    reason: Reason,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) {
    let status = if status { "True" } else { "False" };
    let old = conditions.iter_mut().find(|c| c.type_ == type_.as_str());
    let since = match &old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => now.clone(),
    };
    let new = Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.to_string(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since,
    };
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_flips() {
        let mut all = Vec::new();
        set_condition(
            &mut all,
            ConditionType::Running,
            true,
            Reason::CoordinatorRunning,
            "a",
            Some(1),
            &at(1),
        );
        set_condition(
            &mut all,
            ConditionType::Running,
            true,
            Reason::NodeLost,
            "b",
            Some(2),
            &at(2),
        );
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].reason.as_str(), &all[0].last_transition_time),
            ("NodeLost", &at(1))
        );
        set_condition(
            &mut all,
            ConditionType::Running,
            false,
            Reason::Suspended,
            "c",
            Some(2),
            &at(3),
        );
        assert_eq!(all[0].last_transition_time, at(3));
        assert!(!is_true(&all, ConditionType::Running));
    }
}
