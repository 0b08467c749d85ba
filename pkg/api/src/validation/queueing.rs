//! The queue of Kueue that a job waits in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    fault::Faults,
    names,
    path::{Path, SPEC},
};
use crate::{names::kueue, queueing::QueueingSpec};

/// Labels of a job that Kueue knows: its queue, and its priority there.
pub(super) const QUEUE_LABELS: [&str; 2] = [kueue::QUEUE_LABEL, kueue::PRIORITY_CLASS_LABEL];

/// Checks the labels of a job that name objects of Kueue.
pub(super) fn check_labels(metadata: &ObjectMeta, faults: &mut Faults) {
    for key in QUEUE_LABELS {
        let value = metadata.labels.as_ref().and_then(|labels| labels.get(key));
        check_label(key, value.map_or("", String::as_str), faults);
    }
}

/// Checks one of [`QUEUE_LABELS`]; an empty label means the same as none.
pub(super) fn check_label(key: &str, value: &str, faults: &mut Faults) {
    let metadata = Path::from_name("metadata");
    let labels = metadata.child("labels");
    names::check_name_in_label(value, &labels.key(key), faults);
}

/// Checks how the job gets quota.
pub(super) fn check_queueing(queueing: &QueueingSpec, faults: &mut Faults) {
    let field = SPEC.child("queueing");
    let field = field.child("elasticPriorityClass");
    let class = queueing.elastic_priority_class.as_deref();
    names::check_name_in_label(class.unwrap_or_default(), &field, faults);
}
