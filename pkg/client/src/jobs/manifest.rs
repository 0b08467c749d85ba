//! Reads manifests from files, directories and stdin. YAML and JSON with any number of documents.

use std::{
    fs,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Error, Result};

/// One object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// File or `STDIN`.
    pub origin: String,
    /// The object as written.
    pub object: Value,
}

/// Reads the manifests of a `-f` flag: `-` for stdin, a file or a directory.
///
/// Of a directory, reads the .yaml, .yml and .json files in order, with `recursive` also those of
/// its subdirectories.
pub fn read_manifests(name: &str, recursive: bool) -> Result<Vec<Document>> {
    let manifest_error = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Error::NoSuchPath(name.to_owned()),
        _ => Error::Manifest {
            origin: name.to_owned(),
            message: error.to_string(),
        },
    };
    if name == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(manifest_error)?;
        return parse("STDIN", &text);
    }
    let path = Path::new(name);
    if !path.is_dir() {
        return parse(name, &fs::read_to_string(path).map_err(manifest_error)?);
    }
    let mut documents = Vec::new();
    for file in manifest_files(path, recursive).map_err(manifest_error)? {
        let text = fs::read_to_string(&file).map_err(manifest_error)?;
        documents.extend(parse(&file.to_string_lossy(), &text)?);
    }
    Ok(documents)
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
pub fn parse(origin: &str, text: &str) -> Result<Vec<Document>> {
    let manifest_error = |message: String| Error::Manifest {
        origin: origin.to_owned(),
        message,
    };
    let values: Vec<Value> = if text.trim_start().starts_with('{') {
        serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| manifest_error(error.to_string()))?
    } else {
        // Like kubectl, read a file mode such as 0644 as octal.
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            let message = error.to_string();
            let message = message.strip_prefix("error: ").unwrap_or(&message);
            manifest_error(message.to_owned())
        })?
    };
    let mut documents = Vec::new();
    for value in values {
        flatten_list(origin, value, &mut documents).map_err(manifest_error)?;
    }
    Ok(documents)
}

fn flatten_list(origin: &str, value: Value, documents: &mut Vec<Document>) -> Result<(), String> {
    match value {
        Value::Null => {}
        Value::Object(mut object) => {
            let is_list = object
                .get("kind")
                .and_then(Value::as_str)
                .is_some_and(|kind| kind.ends_with("List"));
            match object.remove("items") {
                Some(Value::Array(items)) if is_list => {
                    for item in items {
                        flatten_list(origin, item, documents)?;
                    }
                    return Ok(());
                }
                Some(other) => {
                    object.insert("items".to_owned(), other);
                }
                None => {}
            }
            documents.push(Document {
                origin: origin.to_owned(),
                object: Value::Object(object),
            });
        }
        other => return Err(format!("expected a Kubernetes object, found {other}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
