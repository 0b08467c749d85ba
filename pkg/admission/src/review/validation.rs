use di_api::{
    AggregatorConfig, DIJob,
    validation::{self, Decoded, Fault, Valid},
};
use serde_json::Value;

/// A valid object with pod templates.
// Boxed: decoded objects have a size of kilobytes.
#[derive(Clone, Debug)]
pub enum ValidObject {
    /// A job.
    DIJob(Box<DIJob>),
    /// The configuration of aggregators.
    AggregatorConfig(Box<AggregatorConfig>),
}

/// The faults and warnings of an object.
#[derive(Debug, Default)]
pub(super) struct ValidationResult {
    /// The object, if it is valid and its spec is new.
    pub(super) object: Option<ValidObject>,
    /// Fields of its pod templates that this program does not know.
    pub(super) unknown_pod_fields: Vec<Fault>,
    /// Reasons of a denial; the object is valid if there are none.
    pub(super) faults: Vec<Fault>,
    /// Warnings for the author, independent of the faults.
    pub(super) warnings: Vec<String>,
}

impl ValidationResult {
    /// Validates a new job.
    pub(super) fn for_new_dijob(job: Decoded<DIJob>) -> Self {
        let warnings = validation::job_warnings(job.object());
        match validation::validate_decoded_dijob(job) {
            Ok(job) => Self::for_valid(job, ValidObject::DIJob, warnings),
            Err(faults) => Self::for_invalid(faults, warnings),
        }
    }

    /// Validates a new job, or an update of `old`.
    pub(super) fn for_dijob(old: Option<&Value>, new: &Value) -> Self {
        let result = match old {
            Some(old) => validation::validate_dijob_update(old, new),
            None => validation::validate_dijob(new).map(Some),
        };
        match result {
            Ok(Some(job)) => {
                let warnings = validation::job_warnings(&job.object);
                Self::for_valid(job, ValidObject::DIJob, warnings)
            }
            // The spec is unchanged: updates of labels, finalizers and status repeat no warnings.
            Ok(None) => Self::default(),
            Err(faults) => Self::for_invalid(faults, validation::rejected_job_warnings(new)),
        }
    }

    /// Validates a new `AggregatorConfig`, or an update of `old`.
    pub(super) fn for_aggregator_config(old: Option<&Value>, new: &Value) -> Self {
        if old.is_some_and(|old| old["spec"] == new["spec"]) {
            return Self::default();
        }
        match validation::validate_aggregator_config(new) {
            Ok(config) => {
                let warnings = validation::config_warnings(&config.object);
                Self::for_valid(config, ValidObject::AggregatorConfig, warnings)
            }
            Err(faults) => Self::for_invalid(faults, Vec::new()),
        }
    }

    fn for_valid<T>(
        valid: Valid<T>,
        wrap: impl FnOnce(Box<T>) -> ValidObject,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            object: Some(wrap(Box::new(valid.object))),
            unknown_pod_fields: valid.unknown_pod_fields,
            faults: Vec::new(),
            warnings,
        }
    }

    fn for_invalid(faults: Vec<Fault>, warnings: Vec<String>) -> Self {
        Self {
            faults,
            warnings,
            ..Self::default()
        }
    }
}
