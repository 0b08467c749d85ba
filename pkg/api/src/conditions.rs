use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::reason::Reason;

/// The condition types of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionType {
    /// The coordinator has been created.
    Created,
    /// The coordinator is running.
    Running,
    /// The job ended successfully.
    Succeeded,
    /// The job failed.
    Failed,
    /// The job is suspended and has no pods left.
    Suspended,
    /// The coordinator and every planned replica are ready.
    ReplicasReady,
    /// Kueue has admitted the job. Only for jobs in a queue.
    Admitted,
}

impl ConditionType {
    /// All condition types.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Suspended,
        Self::ReplicasReady,
        Self::Admitted,
    ];

    /// The type as it appears in `status.conditions`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
            Self::ReplicasReady => "ReplicasReady",
            Self::Admitted => "Admitted",
        }
    }
}

/// Returns the condition of this type if it is set.
pub fn find_condition(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == type_.as_str())
}

/// Whether the condition of this type is set and True.
pub fn is_condition_true(conditions: &[Condition], type_: ConditionType) -> bool {
    find_condition(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Sets a condition. `lastTransitionTime` changes only when the status changes, so setting the same
/// condition again changes nothing.
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

    fn time_at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn condition_transition_time_changes_with_status_only() {
        let mut all = Vec::new();
        set_condition(
            &mut all,
            ConditionType::Running,
            true,
            Reason::CoordinatorRunning,
            "a",
            Some(1),
            &time_at(1),
        );
        set_condition(
            &mut all,
            ConditionType::Running,
            true,
            Reason::NodeLost,
            "b",
            Some(2),
            &time_at(2),
        );
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].reason.as_str(), &all[0].last_transition_time),
            ("NodeLost", &time_at(1))
        );
        set_condition(
            &mut all,
            ConditionType::Running,
            false,
            Reason::Suspended,
            "c",
            Some(2),
            &time_at(3),
        );
        assert_eq!(all[0].last_transition_time, time_at(3));
        assert!(!is_condition_true(&all, ConditionType::Running));
    }
}
