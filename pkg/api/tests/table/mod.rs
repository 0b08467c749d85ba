//! The tables of mistakes and of valid objects (with the samples). Tests of the validator, the
//! schema and the API server share them.

#![allow(clippy::unwrap_used, dead_code)] // a panic is how a test fails, and not every test needs all of it

use di_fixtures::{Job, template};
use serde_json::{Value, json};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/table");
/// Pointer to the coordinator's pod, `~` in the table.
const POD: &str = "/spec/coordinator/template/spec";
/// Pointer to the main container of that pod, `@` in the table.
const CONTAINER: &str = "/spec/coordinator/template/spec/containers/0";

/// All phases of a job; empty for a job without one.
pub const PHASES: [&str; 8] = [
    "",
    "Created",
    "Running",
    "Unknown",
    "Suspended",
    "Queued",
    "Succeeded",
    "Failed",
];

/// One row of the table of mistakes.
pub struct Mistake {
    /// The topic of the row.
    pub topic: String,
    /// JSON pointer to the mistake.
    pub at: String,
    /// The wrong value.
    pub value: Value,
    /// The object with the mistake.
    pub object: Value,
    /// Whether the CRD schema alone rejects it.
    pub schema: bool,
    /// The expected messages.
    pub faults: Vec<String>,
}

/// Returns the smallest job with two roles.
pub fn job() -> Value {
    Job::new("cartpole", 2).in_namespace("rl").json()
}

/// Returns the smallest `AggregatorConfig`.
pub fn config() -> Value {
    json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config", "namespace": "rl"},
        "spec": {"aggregator": {"template": template()}},
    })
}

/// Sets the field at `pointer` to `value`.
pub fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match (object.pointer_mut(parent).unwrap(), key.parse::<usize>()) {
        (Value::Array(items), Ok(index)) => items[index] = value,
        (parent, _) => parent[key] = value,
    }
}

fn read_file(folder: &str, file: &str) -> String {
    std::fs::read_to_string(format!("{folder}/{file}")).unwrap()
}

/// Returns the mistakes of the table in `folder`.
pub fn mistakes_of(folder: &str) -> Vec<Mistake> {
    let mut table: Value = serde_saphyr::from_str(&read_file(folder, "bad.yaml")).unwrap();
    let words = table["words"].take();
    let mut mistakes = Vec::new();
    for (topic, rows) in table["topics"].as_object().unwrap() {
        for row in rows.as_array().unwrap() {
            let at = pointer_of(row["at"].as_str().unwrap());
            let object = object_with(topic, &at, row["is"].clone());
            let says = row["says"].as_array().unwrap().iter();
            mistakes.push(Mistake {
                topic: topic.clone(),
                at,
                value: row["is"].clone(),
                object,
                schema: row["schema"] == true,
                faults: says
                    .map(|text| expand_message(text.as_str().unwrap(), &words))
                    .collect(),
            });
        }
    }
    mistakes
}

/// Expands the abbreviations in a pointer of the table.
pub fn pointer_of(text: &str) -> String {
    text.replace('@', CONTAINER).replace('~', POD)
}

/// Expands the abbreviation at the start of a field of the table.
pub fn path_of(text: &str) -> String {
    let dotted = |pointer: &str| pointer[1..].replace("/0", "[0]").replace('/', ".");
    match text.split_at(1) {
        ("@", rest) => dotted(CONTAINER) + rest,
        ("~", rest) => dotted(POD) + rest,
        _ => text.to_owned(),
    }
}

/// Returns the smallest object of a topic with `value` at `pointer`.
pub fn object_with(topic: &str, pointer: &str, value: Value) -> Value {
    let mut object = if topic.contains("aggregators") {
        config()
    } else {
        job()
    };
    set(&mut object, pointer, value);
    object
}

/// Returns all mistakes.
pub fn mistakes() -> Vec<Mistake> {
    mistakes_of(FOLDER)
}

/// Expands the abbreviations in a message of the table.
fn expand_message(message: &str, words: &Value) -> String {
    let mut full = path_of(message);
    for (word, text) in words.as_object().unwrap() {
        full = full.replace(&format!("{{{word}}}"), text.as_str().unwrap());
    }
    full
}

/// Returns the valid objects of the table in `folder`, and the samples.
pub fn good_of(folder: &str) -> Vec<Value> {
    let mut good: Vec<Value> =
        serde_saphyr::from_multiple(&read_file(folder, "good.yaml")).unwrap();
    let samples = format!("{folder}/../../../../manifests/samples");
    let all: Value = serde_saphyr::from_str(&read_file(&samples, "kustomization.yaml")).unwrap();
    let files = all["resources"].as_array().unwrap().iter();
    good.extend(files.map(|file| {
        let text = read_file(&samples, file.as_str().unwrap());
        serde_saphyr::from_str::<Value>(&text).unwrap()
    }));
    good
}

/// Returns all valid objects.
pub fn good() -> Vec<Value> {
    good_of(FOLDER)
}

/// Returns changes of [`job`]: pointer, value, and the reported field if the change is forbidden.
pub fn changes() -> [(&'static str, Value, &'static str); 4] {
    [
        ("/spec/group", json!("other"), "spec.group"),
        ("/spec/collector/replicas", json!(7), ""),
        ("/spec/suspend", json!(true), ""),
        ("/metadata/labels", json!({"a": "b"}), ""),
    ]
}
