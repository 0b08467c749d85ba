//! The OpenAPI document: from the routes and the types, with what differs between the prefixes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::{
    IntoResponses,
    openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder},
};

use crate::{
    Settings,
    error::Error,
    routes::{LEGACY_STATUS_VERSION, routes},
};

/// Statuses of answers that tell of a fault, and when they come.
const ERROR_RESPONSES: [(&str, &str); 9] = [
    ("400", "The request is at fault"),
    ("401", "Nobody knows who calls"),
    ("403", "The requester may not do this"),
    ("404", "There is no such coordinator, aggregator or replica"),
    (
        "409",
        "The job has ended, is suspended or is being deleted, or the Idempotency-Key is that of another request",
    ),
    ("413", "The body is too large"),
    ("429", "Too much is asked at a time"),
    ("500", "A fault of the endpoint"),
    ("503", "A fault that will pass"),
];
/// Faults that a request without a body cannot meet.
const CHANGE_ONLY_CODES: [&str; 3] = ["409", "413", "429"];
/// Faults that will pass, which clients of the older version are told of with 200.
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

/// The document for an endpoint of these settings, as JSON.
pub(crate) fn document(settings: &Settings) -> String {
    let mut document = serde_json::to_value(routes().into_openapi()).unwrap_or_default();
    document["info"] = json!({
        "title": "DI Orchestrator: replicas of a running DIJob",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Every answer has the form of those described here: that of an unknown path with 404, that of a method which a path does not know with 501.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    });
    let bearer = json!({
        "type": "http", "scheme": "bearer",
        "description": "A token for the audience di-server. Pods of a job need none: they are known by their address.",
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
    document.to_string()
}

/// Both prefixes share their handlers, and so far their description.
fn distinguish_versions(path: &str, method: &str, operation: &mut Value) {
    let Some((version, name)) = path[1..].split_once('/') else {
        return;
    };
    let name = name.replace('/', "-");
    operation["operationId"] = format!("{version}-{method}-{name}").into();
    operation["tags"] = json!([version]);
    operation["security"] = json!([{}, {"bearer": []}]);
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    if method == "get" {
        responses.retain(|code, _| !CHANGE_ONLY_CODES.contains(&code.as_str()));
    }
    if path.starts_with(LEGACY_STATUS_VERSION) {
        responses.retain(|code, _| !RETRYABLE_CODES.contains(&code.as_str()));
        let schema = &mut responses["200"]["content"]["application/json"]["schema"];
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
    use super::*;

    #[test]
    fn each_prefix_is_described_with_its_own_answers() {
        let document: Value = serde_json::from_str(&document(&Settings::default())).unwrap();
        let paths = &document["paths"];
        let of = |path: &str, method: &str| {
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
            assert_eq!(of(&format!("/v1alpha1{path}"), method), older);
            assert_eq!(of(&format!("/v1alpha2{path}"), method), newer);
        }
        assert_eq!(of("/v1alpha1/replicas", "get"), "200 400 401 403 404 500");
        assert_eq!(
            of("/v1alpha2/replicas", "get"),
            "200 400 401 403 404 500 503"
        );
        for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
            assert!(paths[path]["get"].is_object(), "{path}");
        }
        let schemas = &document["components"]["schemas"];
        let count = &schemas["AddRequest"]["properties"]["collectors"]["properties"]["replicas"];
        assert_eq!(count["anyOf"][0]["maximum"], 1000);
        assert_eq!(
            schemas["Failure"]["properties"]["success"]["enum"],
            json!([false])
        );
    }
}
