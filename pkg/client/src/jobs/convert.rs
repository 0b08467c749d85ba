//! Converts manifests of earlier orchestrators.

mod nervex;
mod v2alpha1;

use crate::Document;

/// Converts a document of an earlier orchestrator and describes the changes. `None` for other
/// documents. A job that cannot be converted stays as it is; the description has the reason.
pub fn convert_document(document: &mut Document) -> Option<String> {
    nervex::convert_nervex(document).or_else(|| v2alpha1::convert_v2alpha1(document))
}
