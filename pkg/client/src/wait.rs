use di_api::{ConditionType, Phase, condition};
use serde_json::Value;

use crate::{Job, Outlook, jsonpath::Path};

/// What `--for` names.
#[derive(Clone, Debug, PartialEq)]
pub enum For {
    /// The job is gone.
    Delete,
    /// The job is there.
    Create,
    /// Its phase.
    Phase(Phase),
    /// A condition and its status.
    Condition(String, String),
    /// What stands at a path; without a value, anything.
    JsonPath(Path, Option<String>),
}

impl For {
    /// Reads `delete`, `create`, `phase=Succeeded`, `condition=Running[=true]` or `jsonpath={.status.phase}[=Running]`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "delete" => return Ok(Self::Delete),
            "create" => return Ok(Self::Create),
            _ => {}
        }
        match text.split_once('=') {
            Some(("phase", phase)) => parse_phase(phase).map(Self::Phase),
            Some(("condition", rest)) => {
                let (type_, status) = rest.split_once('=').unwrap_or((rest, "true"));
                Ok(Self::Condition(type_.to_owned(), status.to_owned()))
            }
            Some(("jsonpath", rest)) => parse_path(rest),
            _ => Err(format!(
                "unrecognized condition: {text:?}; expected create, delete, phase=PHASE, condition=TYPE[=STATUS] or jsonpath='{{PATH}}'[=VALUE]"
            )),
        }
    }

    /// Whether a job is as wanted, or can still become so: how it ended never changes.
    pub fn look(&self, job: &Job) -> Outlook {
        let met = match self {
            Self::Create => true,
            Self::Delete => false,
            Self::Phase(phase) => job.status.phase == Some(*phase),
            Self::Condition(type_, status) => {
                let mut all = job.status.conditions.iter();
                // One that tells of an earlier spec says nothing of this one.
                let current = |seen: Option<i64>| seen.is_none() || seen >= job.metadata.generation;
                all.any(|c| {
                    c.type_.eq_ignore_ascii_case(type_)
                        && c.status.eq_ignore_ascii_case(status)
                        && (job.has_ended() || current(c.observed_generation))
                })
            }
            Self::JsonPath(path, value) => found(&job.object, path, value.as_deref()),
        };
        match (met, job.status.phase) {
            (true, _) => Outlook::Met,
            (false, Some(phase)) if phase.is_terminal() && self.is_settled_by_the_end() => {
                Outlook::Never(format!(
                    "{} has ended {}: {} can no longer be reached",
                    job.title(),
                    job.ending(),
                    self.described()
                ))
            }
            _ => Outlook::Open,
        }
    }

    fn is_settled_by_the_end(&self) -> bool {
        match self {
            Self::Phase(_) => true,
            Self::Condition(type_, _) => ConditionType::ALL
                .iter()
                .any(|known| known.as_str().eq_ignore_ascii_case(type_)),
            Self::Delete | Self::Create | Self::JsonPath(..) => false,
        }
    }

    fn described(&self) -> String {
        match self {
            Self::Delete => "its deletion".to_owned(),
            Self::Create => "its creation".to_owned(),
            Self::Phase(phase) => format!("phase {}", phase.as_str()),
            Self::Condition(type_, status) => format!("condition {type_}={status}"),
            Self::JsonPath(..) => "what stands at the path".to_owned(),
        }
    }
}

fn parse_phase(text: &str) -> Result<Phase, String> {
    let known = Phase::ALL.into_iter();
    let mut known = known.filter(|phase| phase.as_str().eq_ignore_ascii_case(text));
    known.next().ok_or_else(|| {
        let all: Vec<_> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
        format!("unknown phase {text:?}; expected one of {}", all.join(", "))
    })
}

/// `{.status.phase}=Running`, the braces and the dot left out where one likes.
fn parse_path(text: &str) -> Result<For, String> {
    let text = text.trim_matches('\'');
    let (path, value) = match text.split_once("}=") {
        Some((path, value)) => (format!("{path}}}"), Some(value)),
        None if text.ends_with('}') => (text.to_owned(), None),
        None => match text.split_once('=') {
            Some((path, value)) => (path.to_owned(), Some(value)),
            None => (text.to_owned(), None),
        },
    };
    let value = value.map(|value| value.trim_matches(['\'', '"']));
    if value == Some("") {
        return Err("jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.phase}'=Running".to_owned());
    }
    let path = path.trim_matches('\'').trim();
    if matches!(path, "" | "{}") {
        return Err("jsonpath expression cannot be empty".to_owned());
    }
    let path = Path::relaxed(path).map_err(|error| error.to_string())?;
    Ok(For::JsonPath(path, value.map(str::to_owned)))
}

fn found(object: &Value, path: &Path, wanted: Option<&str>) -> bool {
    // A list may be too short yet.
    let found = path.find(object).unwrap_or_default();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut found = found.into_iter().filter(|value| !value.is_null());
    found.any(|value| wanted.is_none_or(|wanted| text(value) == wanted))
}

/// Whether a new job got as far as to run; one that was done before anybody looked did.
pub fn has_started(job: &Job) -> Outlook {
    match job.status.phase {
        Some(Phase::Running) => Outlook::Met,
        Some(Phase::Succeeded | Phase::Failed) => has_succeeded(job),
        _ if job.is_held() => Outlook::Never(format!(
            "{} is suspended and does not run; kubectl di resume {}",
            job.title(),
            job.name()
        )),
        _ => Outlook::Open,
    }
}

/// Whether a job has ended well.
pub fn has_succeeded(job: &Job) -> Outlook {
    match job.status.phase {
        Some(Phase::Succeeded) => Outlook::Met,
        Some(Phase::Failed) => {
            Outlook::Never(format!("{} has ended {}", job.title(), job.ending()))
        }
        _ => Outlook::Open,
    }
}

/// Whether a resumed job runs again.
pub fn has_resumed(job: &Job) -> Outlook {
    match has_started(job) {
        // What is seen may still be of the time before.
        Outlook::Met if job.status.observed_generation < job.metadata.generation => Outlook::Open,
        other => other,
    }
}

/// Whether no pod of a suspended job is left.
pub fn is_at_rest(job: &Job) -> Outlook {
    if job.has_ended() {
        return Outlook::Never(format!(
            "{} has ended {} before it was suspended",
            job.title(),
            job.ending()
        ));
    }
    let seen = job.status.observed_generation >= job.metadata.generation;
    if seen && job.status.phase == Some(Phase::Suspended) {
        Outlook::Met
    } else {
        Outlook::Open
    }
}

impl Job {
    /// As messages name it, `dijobs/cartpole`.
    pub fn title(&self) -> String {
        format!("dijobs/{}", self.name())
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        self.status.phase.is_some_and(Phase::is_terminal)
    }

    /// Whether its spec holds it.
    pub fn is_held(&self) -> bool {
        self.object["spec"]["suspend"] == true
    }

    /// How it ended, and why, as `(Failed: CoordinatorFailed, the coordinator failed: exit code 1)`.
    fn ending(&self) -> String {
        let Some(phase) = self.status.phase else {
            return String::new();
        };
        let ended = match phase {
            Phase::Failed => condition(&self.status.conditions, ConditionType::Failed),
            _ => None,
        };
        match ended {
            Some(why) => format!("({}: {}, {})", phase.as_str(), why.reason, why.message),
            None => format!("({})", phase.as_str()),
        }
    }

    /// What holds it up: the worst reason and what is known of it.
    pub fn trouble(&self) -> Option<String> {
        let reason = self.status.reason.as_ref()?;
        let about = condition(&self.status.conditions, ConditionType::ReplicasReady);
        Some(match about.filter(|about| about.reason == *reason) {
            Some(about) => format!("{reason}: {}", about.message),
            None => reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
