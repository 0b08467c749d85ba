use di_api::validation::{self, Fault};
use serde_json::Value;

/// What is to be said of an object.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Why it is denied; nothing means that it is allowed.
    pub(super) faults: Vec<Fault>,
    /// What its author should know, though it is allowed.
    pub(super) warnings: Vec<String>,
}

impl Verdict {
    /// Of a job that is new, or takes the place of `old`.
    pub(super) fn of_dijob(old: Option<&Value>, new: &Value) -> Self {
        let judged = match old {
            // Labels, finalizers and restored status pass, and say nothing of the spec again.
            Some(old) if validation::spec_unchanged(old, new) => return Self::default(),
            Some(old) => validation::dijob_update(old, new),
            None => validation::dijob(new),
        };
        match judged {
            Ok(job) => Self {
                faults: Vec::new(),
                warnings: validation::warnings(&job),
            },
            Err(faults) => Self {
                faults,
                warnings: Vec::new(),
            },
        }
    }

    /// Of a configuration that is new, or takes the place of `old`.
    pub(super) fn of_aggregator_config(old: Option<&Value>, new: &Value) -> Self {
        if old.is_some_and(|old| old["spec"] == new["spec"]) {
            return Self::default();
        }
        Self {
            faults: validation::aggregator_config(new).err().unwrap_or_default(),
            warnings: Vec::new(),
        }
    }
}
