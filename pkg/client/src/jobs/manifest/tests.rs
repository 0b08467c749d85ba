use serde_json::json;

use super::*;

fn parse_objects(text: &str) -> Vec<Value> {
    let documents = parse("job.yaml", text).unwrap().documents;
    documents.into_iter().map(|d| d.object).collect()
}

#[test]
fn documents_are_split_without_empty_ones() {
    let text = "---\n# a comment\n---\nkind: DIJob\n---\n\n---\nkind: AggregatorConfig\n";
    assert_eq!(
        parse_objects(text),
        [
            json!({"kind": "DIJob"}),
            json!({"kind": "AggregatorConfig"})
        ]
    );
    assert!(parse_objects("").is_empty());
}

#[test]
fn concatenated_json_documents_are_read() {
    assert_eq!(
        parse_objects("{\"kind\": \"DIJob\"}\n{\"kind\": \"Pod\", \"big\": 9007199254740993}"),
        [
            json!({"kind": "DIJob"}),
            json!({"kind": "Pod", "big": 9_007_199_254_740_993_i64})
        ]
    );
}

#[test]
fn lists_are_expanded_and_other_items_kept() {
    assert_eq!(
        parse_objects(
            "kind: List\nitems:\n- kind: DIJob\n- kind: DIJobList\n  items: [{kind: DIJob}]"
        ),
        [json!({"kind": "DIJob"}), json!({"kind": "DIJob"})]
    );
    let other = json!({"kind": "ConfigMap", "items": [1]});
    assert_eq!(parse_objects(&other.to_string()), [other]);
}

#[test]
fn scalars_match_kubectl() {
    let text = "mode: 0644\nswitch: yes\nquoted: \"0644\"\nbase: &b {a: 1}\nmerged: {<<: *b, c: 2}";
    assert_eq!(
        parse_objects(text),
        [json!({
            "mode": 420, "switch": true, "quoted": "0644",
            "base": {"a": 1}, "merged": {"a": 1, "c": 2},
        })]
    );
}

#[test]
fn non_object_document_is_an_error() {
    assert_eq!(
        parse("job.yaml", "- a\n").unwrap_err().to_string(),
        r#"job.yaml: expected a Kubernetes object, found ["a"]"#
    );
    assert!(
        parse("job.yaml", "a: [\n")
            .unwrap_err()
            .to_string()
            .starts_with("job.yaml: ")
    );
}

#[test]
fn directory_manifests_are_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    for (name, text) in [
        ("b.yml", "kind: B"),
        ("a.yaml", "kind: A"),
        ("a/d.yaml", "kind: D"),
        ("c.json", "{\"kind\": \"C\"}"),
        ("README.md", "# no manifest"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let kinds = |recursive: bool| -> Vec<_> {
        let documents = read_manifests(dir.path().to_str().unwrap(), recursive);
        let documents = documents.unwrap().documents;
        let kinds = documents.into_iter().map(|d| d.object["kind"].clone());
        kinds.collect()
    };
    assert_eq!(kinds(false), ["A", "B", "C"]);
    assert_eq!(kinds(true), ["D", "A", "B", "C"]);
}

#[test]
fn yaml_error_has_a_single_error_prefix() {
    let error = parse("train.yaml", "kind: DIJob\nspec: [").unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("train.yaml: line "), "{message}");
}
