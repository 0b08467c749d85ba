use di_api::{
    DIJob,
    validation::{self, Fault, Read},
};
use serde_json::Value;

/// The faults and warnings of an object.
#[derive(Debug, Default)]
pub(super) struct ValidationResult {
    /// Reasons of a denial; the object is valid if there are none.
    pub(super) faults: Vec<Fault>,
    /// Warnings for the author, independent of the faults.
    pub(super) warnings: Vec<String>,
}

impl ValidationResult {
    /// Validates a new job.
    pub(super) fn for_new_dijob(job: Read<DIJob>) -> Self {
        Self {
            warnings: validation::warnings(job.object()),
            faults: validation::dijob_read(job).err().unwrap_or_default(),
        }
    }

    /// Validates a new job, or an update of `old`.
    pub(super) fn for_dijob(old: Option<&Value>, new: &Value) -> Self {
        let result = match old {
            Some(old) => validation::dijob_update(old, new),
            None => validation::dijob(new).map(Some),
        };
        match result {
            Ok(Some(job)) => Self {
                faults: Vec::new(),
                warnings: validation::warnings(&job),
            },
            // The spec is unchanged: updates of labels, finalizers and status repeat no warnings.
            Ok(None) => Self::default(),
            Err(faults) => Self {
                faults,
                warnings: validation::warnings_besides(new),
            },
        }
    }

    /// Validates a new `AggregatorConfig`, or an update of `old`.
    pub(super) fn for_aggregator_config(old: Option<&Value>, new: &Value) -> Self {
        if old.is_some_and(|old| old["spec"] == new["spec"]) {
            return Self::default();
        }
        match validation::aggregator_config(new) {
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
