use json_patch::{AddOperation, Patch, PatchOperation, jsonptr::PointerBuf};
use serde_json::Value;

/// A patch that sets one field, and is refused as a conflict unless the object still has this version.
pub fn guarded_patch<'a>(
    resource_version: Option<&str>,
    field: impl IntoIterator<Item = &'a str>,
    value: Value,
) -> Patch {
    let version = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    Patch(vec![
        add(version, resource_version.into()),
        add(PointerBuf::from_tokens(field), value),
    ])
}

/// In a JSON patch, adding a field that is there replaces it.
fn add(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path, value })
}
