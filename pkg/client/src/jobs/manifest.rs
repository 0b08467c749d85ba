//! Reads manifests from files, directories and stdin. YAML and JSON with any number of documents.

use std::{
    fs,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::{Error, Result, yaml};

/// One object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// File or `STDIN`.
    pub origin: String,
    /// The object as written.
    pub object: Value,
}

/// The objects of manifests.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The objects, without those that are empty.
    pub documents: Vec<Document>,
    /// Keys that are read as something else than written.
    pub warnings: Vec<String>,
}

impl Manifest {
    fn extend(&mut self, other: Self) {
        self.documents.extend(other.documents);
        self.warnings.extend(other.warnings);
    }
}

/// Reads the manifests of a `-f` flag: `-` for stdin, a file or a directory.
///
/// Of a directory, reads the .yaml, .yml and .json files in order, with `recursive` also those of
/// its subdirectories.
pub fn read_manifests(name: &str, recursive: bool) -> Result<Manifest> {
    let manifest_error = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Error::NoSuchPath(name.to_owned()),
        _ => Error::Manifest {
            origin: name.to_owned(),
            message: error.to_string(),
        },
    };
    if name == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(manifest_error)?;
        return parse_bytes("STDIN", bytes);
    }
    let path = Path::new(name);
    if !path.is_dir() {
        return parse_bytes(name, fs::read(path).map_err(manifest_error)?);
    }
    let mut manifest = Manifest::default();
    for file in manifest_files(path, recursive).map_err(manifest_error)? {
        let bytes = fs::read(&file).map_err(manifest_error)?;
        manifest.extend(parse_bytes(&file.to_string_lossy(), bytes)?);
    }
    Ok(manifest)
}

/// The same as [`parse`] for the bytes of a file in UTF-8 or UTF-16.
pub fn parse_bytes(origin: &str, bytes: Vec<u8>) -> Result<Manifest> {
    let text = yaml::decode_text(bytes).map_err(|message| Error::Manifest {
        origin: origin.to_owned(),
        message,
    })?;
    parse(origin, &text)
}

fn manifest_files(dir: &Path, recursive: bool) -> std::io::Result<Vec<PathBuf>> {
    let entries: std::io::Result<Vec<_>> = fs::read_dir(dir)?.collect();
    let mut paths: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let extension = path.extension().and_then(|e| e.to_str());
        if path.is_dir() {
            if recursive {
                files.extend(manifest_files(&path, recursive)?);
            }
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Decodes the documents of a text. Drops empty documents and expands lists.
pub fn parse(origin: &str, text: &str) -> Result<Manifest> {
    let manifest_error = |message: String| Error::Manifest {
        origin: origin.to_owned(),
        message,
    };
    let parsed = yaml::parse_manifest(text).map_err(manifest_error)?;
    let mut documents = Vec::new();
    for value in parsed.values {
        flatten_list(origin, value, &mut documents).map_err(manifest_error)?;
    }
    let warnings = parsed.warnings.iter();
    Ok(Manifest {
        documents,
        warnings: warnings.map(|text| format!("{origin}: {text}")).collect(),
    })
}

fn flatten_list(origin: &str, value: Value, documents: &mut Vec<Document>) -> Result<(), String> {
    match value {
        Value::Null => {}
        Value::Object(mut object) => {
            let is_list = object
                .get("kind")
                .and_then(Value::as_str)
                .is_some_and(|kind| kind.ends_with("List"));
            if is_list && let Some(Value::Array(items)) = object.get_mut("items") {
                let mut items = std::mem::take(items).into_iter();
                return items.try_for_each(|item| flatten_list(origin, item, documents));
            }
            fill_empty_metadata(&mut object);
            documents.push(Document {
                origin: origin.to_owned(),
                object: Value::Object(object),
            });
        }
        other => return Err(format!("expected a Kubernetes object, found {other}")),
    }
    Ok(())
}

/// Labels and annotations without value are empty strings, as for the API server.
fn fill_empty_metadata(object: &mut Map<String, Value>) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    for (field, value) in metadata.into_iter().flatten() {
        if let ("labels" | "annotations", Value::Object(entries)) = (field.as_str(), value) {
            let empty = entries.values_mut().filter(|value| value.is_null());
            empty.for_each(|value| *value = "".into());
        }
    }
}

#[cfg(test)]
mod tests;
