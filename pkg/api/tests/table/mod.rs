//! The table of mistakes, and that of jobs that are fine, which has the samples too: every judge (validator, schema, API server) is given
//! the same.

#![allow(clippy::unwrap_used, dead_code)] // a panic is how a test fails, and not every test needs all of it

use serde_json::{Value, json};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/table");
/// The coordinator's pod, `~` in the table.
const POD: &str = "/spec/coordinator/template/spec";
/// Its main container, `@` in the table.
const CONTAINER: &str = "/spec/coordinator/template/spec/containers/0";

/// Phases of a job, and that it has none yet.
pub const PHASES: [&str; 7] = [
    "",
    "Created",
    "Running",
    "Unknown",
    "Suspended",
    "Succeeded",
    "Failed",
];

/// One mistake.
pub struct Mistake {
    /// What it is about.
    pub topic: String,
    /// Where it stands, as a pointer.
    pub at: String,
    /// What stands there.
    pub value: Value,
    /// The object with it.
    pub object: Value,
    /// Whether the definition alone refuses it.
    pub schema: bool,
    /// The faults to be found.
    pub faults: Vec<String>,
}

/// The smallest job that has two roles.
pub fn job() -> Value {
    json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "DIJob",
        "metadata": {"name": "cartpole", "namespace": "rl"},
        "spec": {
            "coordinator": {"template": template()},
            "collector": {"template": template(), "replicas": 2},
        },
    })
}

/// The smallest configuration.
pub fn config() -> Value {
    json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config", "namespace": "rl"},
        "spec": {"aggregator": {"template": template()}},
    })
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "di-container", "image": "i"}]}})
}

/// Puts `value` where `pointer` leads.
pub fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match (object.pointer_mut(parent).unwrap(), key.parse::<usize>()) {
        (Value::Array(items), Ok(index)) => items[index] = value,
        (parent, _) => parent[key] = value,
    }
}

fn read(folder: &str, file: &str) -> String {
    std::fs::read_to_string(format!("{folder}/{file}")).unwrap()
}

/// All mistakes of the table in `folder`.
pub fn mistakes_of(folder: &str) -> Vec<Mistake> {
    let mut table: Value = serde_saphyr::from_str(&read(folder, "bad.yaml")).unwrap();
    let words = table["words"].take();
    let mut mistakes = Vec::new();
    for (topic, rows) in table["topics"].as_object().unwrap() {
        for row in rows.as_array().unwrap() {
            let at = row["at"].as_str().unwrap();
            let at = at.replace('@', CONTAINER).replace('~', POD);
            let mut object = if topic.contains("aggregators") {
                config()
            } else {
                job()
            };
            set(&mut object, &at, row["is"].clone());
            let says = row["says"].as_array().unwrap().iter();
            mistakes.push(Mistake {
                topic: topic.clone(),
                at,
                value: row["is"].clone(),
                object,
                schema: row["schema"] == true,
                faults: says
                    .map(|text| in_full(text.as_str().unwrap(), &words))
                    .collect(),
            });
        }
    }
    mistakes
}

/// All mistakes.
pub fn mistakes() -> Vec<Mistake> {
    mistakes_of(FOLDER)
}

/// A message of the table with its abbreviations spelt out.
fn in_full(message: &str, words: &Value) -> String {
    let dotted = |pointer: &str| pointer[1..].replace("/0", "[0]").replace('/', ".");
    // Only the beginning of a message is a path.
    let mut full = match message.split_at(1) {
        ("@", rest) => dotted(CONTAINER) + rest,
        ("~", rest) => dotted(POD) + rest,
        _ => message.to_owned(),
    };
    for (word, text) in words.as_object().unwrap() {
        full = full.replace(&format!("{{{word}}}"), text.as_str().unwrap());
    }
    full
}

/// Jobs and configurations that are fine: those of the table in `folder`, and the samples.
pub fn good_of(folder: &str) -> Vec<Value> {
    let mut good: Vec<Value> = serde_saphyr::from_multiple(&read(folder, "good.yaml")).unwrap();
    let samples = format!("{folder}/../../../../manifests/samples");
    let all: Value = serde_saphyr::from_str(&read(&samples, "kustomization.yaml")).unwrap();
    let files = all["resources"].as_array().unwrap().iter();
    good.extend(files.map(|file| {
        let text = read(&samples, file.as_str().unwrap());
        serde_saphyr::from_str::<Value>(&text).unwrap()
    }));
    good
}

/// Jobs and configurations that are fine.
pub fn good() -> Vec<Value> {
    good_of(FOLDER)
}

/// Changes of [`job`]: where, to what, and the field that is named where it may not be changed.
pub fn changes() -> [(&'static str, Value, &'static str); 4] {
    [
        ("/spec/group", json!("other"), "spec.group"),
        ("/spec/collector/replicas", json!(7), ""),
        ("/spec/suspend", json!(true), ""),
        ("/metadata/labels", json!({"a": "b"}), ""),
    ]
}
