use json_patch::{AddOperation, Patch, PatchOperation, jsonptr::PointerBuf};
use serde_json::Value;

/// Returns a JSON patch that sets one field. The API server rejects it with a conflict unless the
/// object still has this `resourceVersion`.
// See docs/decisions/0003.
pub fn guarded_patch<'a>(
    resource_version: Option<&str>,
    field: impl IntoIterator<Item = &'a str>,
    value: Value,
) -> Patch {
    Patch(vec![
        resource_version_guard(resource_version),
        set_field(PointerBuf::from_tokens(field), value),
    ])
}

/// Like [`guarded_patch`], for several fields; each is a path and its value.
pub fn guarded_patches(
    resource_version: Option<&str>,
    fields: impl IntoIterator<Item = (Vec<String>, Value)>,
) -> Patch {
    let fields = fields.into_iter().map(|(field, value)| {
        let field = PointerBuf::from_tokens(field.iter().map(String::as_str));
        set_field(field, value)
    });
    Patch(
        std::iter::once(resource_version_guard(resource_version))
            .chain(fields)
            .collect(),
    )
}

fn resource_version_guard(resource_version: Option<&str>) -> PatchOperation {
    let version = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    set_field(version, resource_version.into())
}

/// Uses the operation `add`, which also replaces a field that exists (RFC 6902, section 4.1).
fn set_field(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path, value })
}
