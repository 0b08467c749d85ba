use di_api::{ConditionType, Phase, find_condition};

use crate::{Job, WaitState};

/// The value of `--for`.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitCondition {
    /// The job has this phase.
    Phase(Phase),
    /// The job has a condition with this status.
    Condition(String, String),
    /// Kueue has admitted the job, or the job needs no admission.
    Admitted,
}

impl WaitCondition {
    /// Parses `phase=Succeeded`, `condition=Running[=true]` or `admitted`.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("phase", phase)) => parse_phase(phase).map(Self::Phase),
            Some(("condition", rest)) => {
                let (type_, status) = rest.split_once('=').unwrap_or((rest, "true"));
                Ok(Self::Condition(type_.to_owned(), status.to_owned()))
            }
            None if text.eq_ignore_ascii_case("admitted") => Ok(Self::Admitted),
            _ => Err(format!(
                "unrecognized condition: {text:?}; expected phase=PHASE, condition=TYPE[=STATUS] or admitted"
            )),
        }
    }

    /// The state of the condition for a job. The phase of an ended job never changes.
    pub fn check_job(&self, job: &Job) -> WaitState {
        let met = match self {
            Self::Phase(phase) => job.status.phase == Some(*phase),
            Self::Condition(type_, status) => has_current_condition(job, type_, status),
            Self::Admitted => is_admitted(job),
        };
        match (met, job.status.phase) {
            (true, _) => WaitState::Met,
            (false, Some(phase)) if phase.is_terminal() && self.is_decided_by_end() => {
                WaitState::Impossible(format!(
                    "{} has ended {}: {} can no longer be reached",
                    job.resource_name(),
                    job.describe_end(),
                    self.describe()
                ))
            }
            _ => WaitState::Pending,
        }
    }

    fn is_decided_by_end(&self) -> bool {
        match self {
            Self::Phase(_) | Self::Admitted => true,
            Self::Condition(type_, _) => ConditionType::ALL
                .iter()
                .any(|known| known.as_str().eq_ignore_ascii_case(type_)),
        }
    }

    /// The condition in words, for example `phase Running`.
    pub fn describe(&self) -> String {
        match self {
            Self::Phase(phase) => format!("phase {}", phase.as_str()),
            Self::Condition(type_, status) => format!("condition {type_}={status}"),
            Self::Admitted => "admission".to_owned(),
        }
    }
}

fn has_current_condition(job: &Job, type_: &str, status: &str) -> bool {
    let mut all = job.status.conditions.iter();
    // Ignore conditions of an older generation, as kubectl does.
    let current = |seen: Option<i64>| seen.is_none() || seen >= job.metadata.generation;
    all.any(|c| {
        c.type_.eq_ignore_ascii_case(type_)
            && c.status.eq_ignore_ascii_case(status)
            && (job.has_ended() || current(c.observed_generation))
    })
}

/// Whether Kueue has admitted the job, or the job is in no queue and does not wait.
fn is_admitted(job: &Job) -> bool {
    let phase = job.status.phase;
    let is_unqueued = phase.is_some_and(|phase| phase != Phase::Queued);
    (job.queue_name().is_none() && is_unqueued)
        || has_current_condition(job, ConditionType::Admitted.as_str(), "True")
}

fn parse_phase(text: &str) -> Result<Phase, String> {
    let known = Phase::ALL.into_iter();
    let mut known = known.filter(|phase| phase.as_str().eq_ignore_ascii_case(text));
    known.next().ok_or_else(|| {
        let all: Vec<_> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
        format!("unknown phase {text:?}; expected one of {}", all.join(", "))
    })
}

/// Whether a new job runs or has succeeded already.
pub fn started_state(job: &Job) -> WaitState {
    match job.status.phase {
        Some(Phase::Running) => WaitState::Met,
        Some(Phase::Succeeded | Phase::Failed) => succeeded_state(job),
        _ if job.is_suspended() => WaitState::Impossible(format!(
            "{} is suspended and does not run; to start it: kubectl di resume {}",
            job.resource_name(),
            job.name()
        )),
        _ => WaitState::Pending,
    }
}

/// Whether a job has succeeded.
pub fn succeeded_state(job: &Job) -> WaitState {
    match job.status.phase {
        Some(Phase::Succeeded) => WaitState::Met,
        Some(Phase::Failed) => WaitState::Impossible(format!(
            "{} has ended {}",
            job.resource_name(),
            job.describe_end()
        )),
        _ => WaitState::Pending,
    }
}

/// Whether a resumed job runs again.
pub fn resumed_state(job: &Job) -> WaitState {
    match started_state(job) {
        // The status may be older than the resume.
        WaitState::Met if job.status.observed_generation < job.metadata.generation => {
            WaitState::Pending
        }
        other => other,
    }
}

/// Whether a suspended job has no pods left.
pub fn suspended_state(job: &Job) -> WaitState {
    if job.has_ended() {
        return WaitState::Impossible(format!(
            "{} has ended {} before it was suspended",
            job.resource_name(),
            job.describe_end()
        ));
    }
    let seen = job.status.observed_generation >= job.metadata.generation;
    if seen && job.status.phase == Some(Phase::Suspended) {
        WaitState::Met
    } else {
        WaitState::Pending
    }
}

impl Job {
    /// The name in messages, for example `dijobs/cartpole`.
    pub fn resource_name(&self) -> String {
        format!("dijobs/{}", self.name())
    }

    /// Whether the job has ended.
    pub fn has_ended(&self) -> bool {
        self.status.phase.is_some_and(Phase::is_terminal)
    }

    /// Whether the spec suspends the job.
    pub fn is_suspended(&self) -> bool {
        self.object["spec"]["suspend"] == true
    }

    /// Phase and reason of the end, for example
    /// `(Failed: CoordinatorFailed, the coordinator failed: exit code 1)`.
    fn describe_end(&self) -> String {
        let Some(phase) = self.status.phase else {
            return String::new();
        };
        let ended = match phase {
            Phase::Failed => find_condition(&self.status.conditions, ConditionType::Failed),
            _ => None,
        };
        match ended {
            Some(end) => format!("({}: {}, {})", phase.as_str(), end.reason, end.message),
            None => format!("({})", phase.as_str()),
        }
    }

    /// The most severe problem of the job with its message.
    pub fn problem_summary(&self) -> Option<String> {
        let reason = self.status.reason.as_ref()?;
        let about = [ConditionType::ReplicasReady, ConditionType::Admitted]
            .into_iter()
            .filter_map(|type_| find_condition(&self.status.conditions, type_))
            .find(|about| about.reason == *reason);
        Some(match about {
            Some(about) => format!("{reason}: {}", about.message),
            None => reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
