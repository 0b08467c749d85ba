//! OpenAPI schemas of the request bodies.

use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

use super::{
    body::{AddRequest, FailedRequest, RemoveRequest},
    schema::{body_name, to_schema},
};

/// Kubernetes quantities; only the size check of [`di_api::quantity`] is stricter.
const QUANTITY: &str = "^([0-9]{1,15}(\\.[0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi)?)?$";
/// A count that is below any limit.
const COUNT: &str = "^[0-9]{1,2}$";

fn body_schema(parts: &Value) -> RefOr<Schema> {
    let name = body_name();
    let mut schema = json!({
        "type": "object",
        "required": ["namespace", "coordinator"],
        "properties": {"namespace": name, "coordinator": name},
    });
    for field in ["collectors", "learners"] {
        schema["properties"][field].clone_from(parts);
    }
    to_schema(schema)
}

fn count_schema() -> Value {
    json!({"anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": COUNT},
        {"type": "null"},
    ]})
}

fn quantity_schema(number: &Value) -> Value {
    json!({"anyOf": [number, {"type": "string", "pattern": QUANTITY}, {"type": "null"}]})
}

impl PartialSchema for AddRequest {
    fn schema() -> RefOr<Schema> {
        let amount = quantity_schema(
            &json!({"type": "number", "minimum": 0, "maximum": 1_000_000_000_000_i64}),
        );
        let whole = json!({"anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 1_000_000},
            {"type": "string", "pattern": "^[0-9]{0,6}$"},
            {"type": "null"},
        ]});
        body_schema(&json!({
            "type": ["object", "null"],
            "properties": {
                "replicas": count_schema(),
                "cpus": amount, "cpu": amount, "memory": amount,
                "gpus": whole, "gpu": whole,
            },
        }))
    }
}

impl PartialSchema for RemoveRequest {
    fn schema() -> RefOr<Schema> {
        // Resources are checked and then ignored.
        AddRequest::schema()
    }
}

impl PartialSchema for FailedRequest {
    fn schema() -> RefOr<Schema> {
        body_schema(&json!({
            "type": ["array", "null"],
            "items": {"type": "string", "description": "Name or URL of a pod"},
        }))
    }
}

impl ToSchema for AddRequest {}
impl ToSchema for RemoveRequest {}
impl ToSchema for FailedRequest {}
