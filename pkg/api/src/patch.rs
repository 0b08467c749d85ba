use json_patch::{AddOperation, Patch, PatchOperation, jsonptr::PointerBuf};
use serde_json::Value;

/// A patch that sets one field, and is refused as a conflict unless the object still has this version.
pub fn guarded_patch<'a>(
    resource_version: Option<&str>,
    field: impl IntoIterator<Item = &'a str>,
    value: Value,
) -> Patch {
    Patch(vec![
        guard(resource_version),
        add(PointerBuf::from_tokens(field), value),
    ])
}

/// The same of several fields, each a path and its value.
pub fn guarded_patches(
    resource_version: Option<&str>,
    fields: impl IntoIterator<Item = (Vec<String>, Value)>,
) -> Patch {
    let fields = fields.into_iter().map(|(field, value)| {
        let field = PointerBuf::from_tokens(field.iter().map(String::as_str));
        add(field, value)
    });
    Patch(
        std::iter::once(guard(resource_version))
            .chain(fields)
            .collect(),
    )
}

fn guard(resource_version: Option<&str>) -> PatchOperation {
    let version = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    add(version, resource_version.into())
}

/// In a JSON patch, adding a field that is there replaces it.
fn add(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path, value })
}
