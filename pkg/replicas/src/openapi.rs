//! Generates the OpenAPI document from the routes and types, with the differences between versions.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::{
    IntoResponses,
    openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder},
};

use crate::{error::Error, routes::build_routes, settings::Settings, versions::is_legacy_path};

/// Error statuses and their descriptions.
const ERROR_RESPONSES: [(&str, &str); 9] = [
    ("400", "The request is invalid"),
    ("401", "The requester is unknown"),
    ("403", "The requester may not do this"),
    ("404", "There is no such coordinator, aggregator or replica"),
    (
        "409",
        "The job has ended, is suspended, waits in its queue or is being deleted, its queue accepts no more replicas, or the Idempotency-Key was used by another request",
    ),
    ("413", "The body is too large"),
    ("429", "Too many requests at the same time"),
    ("500", "An internal error of the endpoint"),
    ("503", "A transient error"),
];
/// Errors that only a request with a body gets.
const CHANGE_ONLY_CODES: [&str; 2] = ["409", "413"];
/// Parameters of a list that only the newer version has.
const NEWER_PARAMETERS: [&str; 3] = ["generation", "wait", "If-None-Match"];
/// Retryable errors, returned with status 200 to clients of the older version.
/// See docs/decisions/0007.
const RETRYABLE_CODES: [&str; 2] = ["429", "503"];

impl IntoResponses for Error {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let content = || {
            let failure = Ref::from_schema_name("Failure");
            ContentBuilder::new().schema(Some(failure)).build()
        };
        let response = |description: &str| {
            ResponseBuilder::new()
                .description(description)
                .content("application/json", content())
                .build()
                .into()
        };
        ERROR_RESPONSES
            .into_iter()
            .map(|(code, description)| (code.to_owned(), response(description)))
            .collect()
    }
}

/// Returns the document for these settings as JSON.
pub(crate) fn openapi_document(settings: &Settings) -> String {
    let mut document = serde_json::to_value(build_routes().into_openapi()).unwrap_or_default();
    document["info"] = json!({
        "title": "DI Orchestrator: replicas of a running DIJob",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Every response has one of the forms below. An unknown path is answered with 404, an unsupported method of a path with 501.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    });
    let bearer = json!({
        "type": "http", "scheme": "bearer",
        "description": "A token for the audience di-server. Pods of a job need none: they are recognised by their address.",
    });
    document["components"]["securitySchemes"] = json!({"bearer": bearer});
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            distinguish_versions(path, method, operation);
        }
    }
    for (body, most) in [
        ("AddRequest", settings.max_replicas_per_request),
        ("RemoveRequest", settings.max_replicas_per_job),
    ] {
        for part in ["collectors", "learners"] {
            let part = &mut document["components"]["schemas"][body]["properties"][part];
            part["properties"]["replicas"]["anyOf"][0]["maximum"] = most.into();
        }
    }
    add_strict_schemas(&mut document["components"]["schemas"]);
    add_legacy_list_schemas(&mut document["components"]["schemas"]);
    document.to_string()
}

/// Bodies whose unknown fields only the older version ignores.
const BODIES: [&str; 3] = ["AddRequest", "RemoveRequest", "FailedRequest"];

/// Adds the schemas of the bodies of the newer version.
fn add_strict_schemas(schemas: &mut Value) {
    for body in BODIES {
        let mut strict = schemas[body].clone();
        strict["additionalProperties"] = false.into();
        for role in ["collectors", "learners"] {
            let role = &mut strict["properties"][role];
            if role["properties"].is_object() {
                role["additionalProperties"] = false.into();
            }
        }
        schemas[format!("Strict{body}")] = strict;
    }
}

/// Adds the schemas of the lists of the older version, which have no generation.
fn add_legacy_list_schemas(schemas: &mut Value) {
    for (name, legacy) in [
        ("ListData", "LegacyListData"),
        ("Success_ListData", "Success_LegacyListData"),
    ] {
        let schema = schemas[name].to_string();
        let schema = schema.replace("ListedReplicas", "Replicas");
        let schema = schema.replace("/ListData", "/LegacyListData");
        schemas[legacy] = serde_json::from_str(&schema).unwrap_or_default();
    }
}

/// Both versions share their handlers: sets the responses that differ between them.
fn distinguish_versions(path: &str, method: &str, operation: &mut Value) {
    let Some((version, name)) = path[1..].split_once('/') else {
        return;
    };
    let name = name.replace('/', "-");
    operation["operationId"] = format!("{version}-{method}-{name}").into();
    operation["tags"] = json!([version]);
    operation["security"] = json!([{}, {"bearer": []}]);
    let body = operation.pointer_mut("/requestBody/content/application~1json/schema/$ref");
    if let Some(Value::String(reference)) = body.filter(|_| !is_legacy_path(path)) {
        *reference = reference.replace("/schemas/", "/schemas/Strict");
    }
    if is_legacy_path(path)
        && let Some(Value::Array(parameters)) = operation.get_mut("parameters")
    {
        let is_newer = |name: &Value| NEWER_PARAMETERS.into_iter().any(|newer| *name == newer);
        parameters.retain(|parameter| !is_newer(&parameter["name"]));
    }
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    if method == "get" {
        responses.retain(|code, _| !CHANGE_ONLY_CODES.contains(&code.as_str()));
    }
    if is_legacy_path(path) {
        responses.retain(|code, _| code != "304" && !RETRYABLE_CODES.contains(&code.as_str()));
        if let Some(success) = responses["200"].as_object_mut() {
            success.remove("headers");
        }
        let schema = &mut responses["200"]["content"]["application/json"]["schema"];
        if let Some(Value::String(reference)) = schema.get_mut("$ref") {
            *reference = reference.replace("AddedReplicas", "Replicas");
            *reference = reference.replace("_ListData", "_LegacyListData");
        }
        let failure = json!({"$ref": "#/components/schemas/Failure"});
        *schema = json!({"anyOf": [schema.take(), failure]});
    } else {
        for code in RETRYABLE_CODES {
            if let Some(response) = responses.get_mut(code) {
                let seconds = json!({"type": "integer", "minimum": 1});
                response["headers"] = json!({"Retry-After": {"schema": seconds, "required": true}});
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn openapi_describes_responses_per_version() {
        let document: Value =
            serde_json::from_str(&openapi_document(&Settings::default())).unwrap();
        let paths = &document["paths"];
        let response_codes = |path: &str, method: &str| {
            let responses = paths[path][method]["responses"].as_object().unwrap();
            responses.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        let older = "200 400 401 403 404 409 413 500";
        let newer = "200 400 401 403 404 409 413 429 500 503";
        for (path, method) in [
            ("/replicas", "post"),
            ("/replicas", "delete"),
            ("/replicas/failed", "post"),
        ] {
            assert_eq!(response_codes(&format!("/v1alpha1{path}"), method), older);
            assert_eq!(response_codes(&format!("/v1alpha2{path}"), method), newer);
        }
        assert_eq!(
            response_codes("/v1alpha1/replicas", "get"),
            "200 400 401 403 404 500"
        );
        assert_eq!(
            response_codes("/v1alpha2/replicas", "get"),
            "200 304 400 401 403 404 429 500 503"
        );
        let parameters = |version: &str| {
            let parameters = &paths[format!("/{version}/replicas")]["get"]["parameters"];
            let names = parameters.as_array().unwrap().iter();
            let names = names.map(|parameter| parameter["name"].as_str().unwrap().to_owned());
            names.collect::<BTreeSet<_>>()
        };
        let newer: BTreeSet<_> = NEWER_PARAMETERS.map(str::to_owned).into();
        assert_eq!(parameters("v1alpha1").len(), 4);
        assert_eq!(&parameters("v1alpha2") - &parameters("v1alpha1"), newer);
        for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
            assert!(paths[path]["get"].is_object(), "{path}");
        }
        let schemas = &document["components"]["schemas"];
        let count = &schemas["AddRequest"]["properties"]["collectors"]["properties"]["replicas"];
        assert_eq!(count["anyOf"][0]["maximum"], 1000);
        let body = |version: &str| {
            let operation = &paths[format!("/{version}/replicas")]["post"];
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            schema["$ref"].as_str().unwrap().rsplit_once('/').unwrap().1
        };
        assert_eq!(body("v1alpha1"), "AddRequest");
        assert_eq!(body("v1alpha2"), "StrictAddRequest");
        let added = |version: &str| {
            let response = &paths[format!("/{version}/replicas")]["post"]["responses"]["200"];
            response["content"]["application/json"]["schema"].clone()
        };
        let reference = |name: &str| {
            assert!(schemas[name].is_object(), "{name}");
            json!(format!("#/components/schemas/{name}"))
        };
        assert_eq!(
            added("v1alpha1")["anyOf"][0]["$ref"],
            reference("Success_Replicas")
        );
        assert_eq!(
            added("v1alpha2")["$ref"],
            reference("Success_AddedReplicas")
        );
        // All schemas that a schema refers to, as text.
        let with_references = |name: &str| {
            let mut text = schemas[name].to_string();
            for name in ["LegacyListData", "ListData", "ListedReplicas", "Replicas"] {
                if text.contains(&format!("/{name}\"")) {
                    text += &schemas[name].to_string();
                }
            }
            text
        };
        for (version, has_generation) in [("v1alpha1", false), ("v1alpha2", true)] {
            let response = &paths[format!("/{version}/replicas")]["get"]["responses"]["200"];
            let schema = &response["content"]["application/json"]["schema"];
            let schema = schema["anyOf"].get(0).unwrap_or(schema);
            let name = schema["$ref"].as_str().unwrap().rsplit_once('/').unwrap().1;
            let text = with_references(name);
            assert!(text.contains("collectors"), "{text}");
            assert_eq!(text.contains("generation"), has_generation, "{text}");
            assert_eq!(response["headers"]["ETag"].is_object(), has_generation);
        }
        let strict = &schemas["StrictAddRequest"];
        assert_eq!(strict["additionalProperties"], false);
        assert_eq!(
            strict["properties"]["learners"]["additionalProperties"],
            false
        );
        assert_eq!(
            schemas["Failure"]["properties"]["success"]["enum"],
            json!([false])
        );
    }
}
