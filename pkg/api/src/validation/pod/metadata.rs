use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::{
    fault::{Fault, Faults},
    names,
    path::Path,
};

/// Maximum size of all annotations together, in bytes.
const MAX_ANNOTATIONS_SIZE: usize = 262_144;

/// Checks labels and annotations.
pub(crate) fn check_metadata(metadata: &ObjectMeta, field: &Path<'_>, faults: &mut Faults) {
    let labels = field.child("labels");
    for (key, value) in metadata.labels.iter().flatten() {
        names::check_qualified_name(key, &labels, faults);
        names::check_label_value(value, &labels, faults);
    }
    let annotations = field.child("annotations");
    let mut size = 0;
    for (key, value) in metadata.annotations.iter().flatten() {
        // The API server also allows an upper-case prefix in annotation keys.
        names::check_qualified_name(&key.to_lowercase(), &annotations, faults);
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS_SIZE {
        faults.push(Fault::too_long(annotations, MAX_ANNOTATIONS_SIZE));
    }
}
