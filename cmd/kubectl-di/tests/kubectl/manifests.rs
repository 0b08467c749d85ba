//! Manifests: the same objects.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::programs::{Comparison, Output, Sandbox, check_all};

#[derive(Deserialize)]
struct Corpus {
    /// Scalars that both read, compared in one object.
    scalars: Vec<String>,
    documents: BTreeMap<String, Document>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The whole manifest.
    #[serde(default)]
    text: String,
    /// The spec of an object, instead of the manifest.
    spec: Option<String>,
    encoding: Option<String>,
    /// The plugin rejects it, and so does kubectl unless there is a difference.
    #[serde(default)]
    fails: bool,
    difference: Option<String>,
}

fn corpus() -> Corpus {
    serde_saphyr::from_str(include_str!("manifests.yaml")).unwrap()
}

const KUBECONFIG: &str = "{current-context: c, contexts: [{name: c, context: {cluster: k}}], clusters: [{name: k, cluster: {server: $HTTP}}]}";

/// An object of a kind that the plugin does not check.
fn with_spec(spec: &str) -> String {
    let indented = spec.replace('\n', "\n  ");
    format!(
        "apiVersion: compare.test/v1\nkind: Sample\nmetadata: {{name: a}}\nspec:\n  {indented}\n"
    )
}

fn encode(text: &str, encoding: Option<&str>) -> Vec<u8> {
    let units = || text.encode_utf16();
    match encoding {
        None => text.as_bytes().to_vec(),
        Some("utf-16le") => [0xFF, 0xFE]
            .into_iter()
            .chain(units().flat_map(u16::to_le_bytes))
            .collect(),
        Some("utf-16be") => [0xFE, 0xFF]
            .into_iter()
            .chain(units().flat_map(u16::to_be_bytes))
            .collect(),
        Some("latin-1") => text.chars().map(|c| u8::try_from(c).unwrap()).collect(),
        Some(other) => panic!("unknown encoding {other}"),
    }
}

/// The objects that both programs read, or `None` if they fail.
fn read_objects(sandbox: &Sandbox, content: &[u8]) -> [(Option<Vec<Value>>, String); 2] {
    let config = sandbox.expand(KUBECONFIG);
    fs::write(sandbox.path().join("config"), config).unwrap();
    fs::write(sandbox.path().join("manifest.yaml"), content).unwrap();
    let path = sandbox.path().join("config").to_str().unwrap().to_owned();
    let environment = BTreeMap::from([("KUBECONFIG".to_owned(), path)]);
    let words = [
        "create",
        "--dry-run=client",
        "-o",
        "json",
        "-f",
        "manifest.yaml",
    ];
    let words: Vec<_> = words.map(str::to_owned).to_vec();
    let plugin = sandbox.plugin(&words, &environment);
    let kubectl = [words, vec!["--validate=false".to_owned()]].concat();
    let kubectl = sandbox.kubectl(&kubectl, &environment);
    [kubectl, plugin].map(|output| (parse_objects(&output), output.stderr))
}

fn parse_objects(output: &Output) -> Option<Vec<Value>> {
    let printed = serde_json::Deserializer::from_str(&output.stdout).into_iter::<Value>();
    let mut objects = Vec::new();
    for object in printed.map(Result::unwrap) {
        match object["items"].as_array() {
            Some(items) if object["kind"] == "List" => objects.extend(items.clone()),
            _ => objects.push(object),
        }
    }
    output.succeeded.then_some(objects)
}

#[test]
fn scalars_match_kubectl() {
    let scalars = corpus().scalars;
    let fields = scalars.iter().enumerate();
    let fields: Vec<_> = fields
        .map(|(index, text)| format!("s{index}: {text}"))
        .collect();
    let fields = fields.join("\n");
    let sandbox = Sandbox::new();
    let [kubectl, plugin] = read_objects(&sandbox, with_spec(&fields).as_bytes());
    let spec = |(objects, errors): (Option<Vec<Value>>, String)| -> Map<String, Value> {
        let objects = objects.unwrap_or_else(|| panic!("{errors}"));
        objects[0]["spec"].as_object().unwrap().clone()
    };
    let (kubectl, plugin) = (spec(kubectl), spec(plugin));
    for (index, text) in scalars.iter().enumerate() {
        let field = format!("s{index}");
        assert_eq!(plugin[&field], kubectl[&field], "{text}");
    }
}

#[test]
fn documents_match_kubectl() {
    let documents: Vec<_> = corpus().documents.into_iter().collect();
    check_all(
        &documents,
        |(name, _)| name,
        |(_, document)| document.difference.as_deref(),
        |(_, document)| {
            let spec = document.spec.as_deref().map(with_spec);
            let text = spec.unwrap_or_else(|| document.text.clone());
            let content = encode(&text, document.encoding.as_deref());
            let [kubectl, plugin] = read_objects(&Sandbox::new(), &content);
            let [expected, found] =
                [&kubectl, &plugin].map(|(objects, errors)| json!([objects, errors]));
            Comparison {
                agrees: kubectl.0 == plugin.0,
                is_expected: plugin.0.is_none() == document.fails,
                outcomes: format!("kubectl: {expected}\n  plugin: {found}"),
            }
        },
    );
}
