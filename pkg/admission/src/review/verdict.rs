use di_api::{
    DIJob,
    validation::{self, Fault, Decoded},
};
use serde_json::Value;

/// What is to be said of an object.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Why it is denied; nothing means that it is allowed.
    pub(super) faults: Vec<Fault>,
    /// What its author should know besides.
    pub(super) warnings: Vec<String>,
}

impl Verdict {
    /// Of a job that is new.
    pub(super) fn of_new_dijob(job: Decoded<DIJob>) -> Self {
        Self {
            warnings: validation::job_warnings(job.object()),
            faults: validation::validate_decoded_dijob(job).err().unwrap_or_default(),
        }
    }

    /// Of a job that is new, or takes the place of `old`.
    pub(super) fn of_dijob(old: Option<&Value>, new: &Value) -> Self {
        let judged = match old {
            Some(old) => validation::validate_dijob_update(old, new),
            None => validation::validate_dijob(new).map(Some),
        };
        match judged {
            Ok(Some(job)) => Self {
                faults: Vec::new(),
                warnings: validation::job_warnings(&job),
            },
            // Labels, finalizers and restored status pass, and say nothing of the spec again.
            Ok(None) => Self::default(),
            Err(faults) => Self {
                faults,
                warnings: validation::rejected_job_warnings(new),
            },
        }
    }

    /// Of a configuration that is new, or takes the place of `old`.
    pub(super) fn of_aggregator_config(old: Option<&Value>, new: &Value) -> Self {
        if old.is_some_and(|old| old["spec"] == new["spec"]) {
            return Self::default();
        }
        match validation::validate_aggregator_config(new) {
            Ok(config) => Self {
                faults: Vec::new(),
                warnings: validation::config_warnings(&config),
            },
            Err(faults) => Self {
                faults,
                warnings: Vec::new(),
            },
        }
    }
}
