use std::io::{self, Write};

use di_client::ObjectRef;
use serde_json::{Value, json};

/// The kind and name of an object, such as `dijob.diengine.opendilab.org/cartpole`.
pub fn kind_and_name(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    let name = name.or(object["metadata"]["generateName"].as_str());
    format!("{}/{}", qualified_kind(object), name.unwrap_or_default())
}

/// The kind and group of an object, such as `dijob.diengine.opendilab.org`.
fn qualified_kind(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    match object["apiVersion"]
        .as_str()
        .and_then(|v| v.split_once('/'))
    {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// The kind and quoted name of a deleted object, such as `dijob.diengine.opendilab.org "cartpole"`.
pub fn quoted_name(target: &ObjectRef) -> String {
    let mut kind = target.api.kind.to_lowercase();
    if !target.api.group.is_empty() {
        kind = format!("{kind}.{}", target.api.group);
    }
    format!("{kind} {:?}", target.name)
}

/// Prints a value as JSON.
pub fn print_json(out: &mut impl Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{value:#}")
}

/// Prints a value as YAML. The caller prints `---` between documents.
pub fn print_yaml(out: &mut impl Write, value: &Value) -> io::Result<()> {
    let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
    writeln!(out, "{}", text.trim_end())
}

/// Removes the managed fields, as kubectl does by default.
pub fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// A `List` of objects without managed fields.
pub fn to_trimmed_list(items: Vec<Value>) -> Value {
    let items: Vec<_> = items.into_iter().map(without_managed_fields).collect();
    to_list(&items)
}

/// A `List` of objects, unchanged.
pub fn to_list(items: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_name_include_the_group() {
        let job = json!({"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "metadata": {"name": "x"}});
        assert_eq!(kind_and_name(&job), "dijob.diengine.opendilab.org/x");
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
        assert_eq!(kind_and_name(&map), "configmap/x-");
    }

    #[test]
    fn printed_yaml_parses_to_the_same_value() {
        let value = json!({
            "octal": "0644", "bool": "yes", "null": "null", "number": "1.0", "empty": "",
            "lines": "a\n b\n", "colon": "a: b", "hash": "a #b", "list": [[], {}, ["- x"]],
            "time": "2026-01-01T00:00:00Z", "exp": "1e3", "hex": "0x10", "tilde": "~", "n": "n",
        });
        let mut text = Vec::new();
        print_yaml(&mut text, &value).unwrap();
        let text = String::from_utf8(text).unwrap();
        let documents = di_client::manifest::parse("-", &text).unwrap().documents;
        assert_eq!(documents[0].object, value, "{text}");
    }
}
