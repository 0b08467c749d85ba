use serde_json::json;

use super::*;

fn objects(text: &str) -> Vec<Value> {
    let documents = parse("job.yaml", text).unwrap();
    documents.into_iter().map(|d| d.object).collect()
}

#[test]
fn documents_are_taken_apart_and_empty_ones_left_out() {
    let text = "---\n# a comment\n---\nkind: DIJob\n---\n\n---\nkind: AggregatorConfig\n";
    assert_eq!(
        objects(text),
        [
            json!({"kind": "DIJob"}),
            json!({"kind": "AggregatorConfig"})
        ]
    );
    assert!(objects("").is_empty());
}

#[test]
fn json_may_follow_json() {
    assert_eq!(
        objects("{\"kind\": \"DIJob\"}\n{\"kind\": \"Pod\", \"big\": 9007199254740993}"),
        [
            json!({"kind": "DIJob"}),
            json!({"kind": "Pod", "big": 9_007_199_254_740_993_i64})
        ]
    );
}

#[test]
fn lists_are_taken_apart_and_items_of_others_stay() {
    assert_eq!(
        objects("kind: List\nitems:\n- kind: DIJob\n- kind: DIJobList\n  items: [{kind: DIJob}]"),
        [json!({"kind": "DIJob"}), json!({"kind": "DIJob"})]
    );
    let other = json!({"kind": "ConfigMap", "items": [1]});
    assert_eq!(objects(&other.to_string()), [other]);
}

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    let text = "mode: 0644\nswitch: yes\nquoted: \"0644\"\nbase: &b {a: 1}\nmerged: {<<: *b, c: 2}";
    assert_eq!(
        objects(text),
        [json!({
            "mode": 420, "switch": true, "quoted": "0644",
            "base": {"a": 1}, "merged": {"a": 1, "c": 2},
        })]
    );
}

#[test]
fn what_is_no_object_is_named() {
    assert_eq!(
        parse("job.yaml", "- a\n").unwrap_err().to_string(),
        r#"job.yaml: expected an object, found ["a"]"#
    );
    assert!(
        parse("job.yaml", "a: [\n")
            .unwrap_err()
            .to_string()
            .starts_with("job.yaml: ")
    );
}

#[test]
fn a_directory_stands_for_its_manifests_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("b.yml", "kind: B"),
        ("a.yaml", "kind: A"),
        ("c.json", "{\"kind\": \"C\"}"),
        ("README.md", "# no manifest"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let kinds: Vec<_> = read(dir.path().to_str().unwrap())
        .unwrap()
        .into_iter()
        .map(|d| d.object["kind"].clone())
        .collect();
    assert_eq!(kinds, ["A", "B", "C"]);
}

#[test]
fn addresses_are_answered_with_a_way_round() {
    let error = read("https://example.org/job.yaml")
        .unwrap_err()
        .to_string();
    assert!(error.contains("curl -fsSL https://example.org/job.yaml | kubectl di create -f -"));
}
