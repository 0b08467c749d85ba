//! OpenAPI schemas of the request bodies and of the constant fields of responses.

use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

use super::{AddRequest, FailedRequest, MAX_NAME_LEN, Nothing, RemoveRequest};

/// Names that [`super::parse_name`] accepts.
const NAME: &str = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";
const NAME_OR_NOTHING: &str = "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$";
/// Kubernetes quantities; only the size check of [`di_api::quantity`] is stricter.
const QUANTITY: &str = "^([0-9]{1,15}(\\.[0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi)?)?$";
/// A count that is below any limit.
const COUNT: &str = "^[0-9]{1,2}$";

fn to_schema(schema: Value) -> RefOr<Schema> {
    // The text is constant, and tests of the document check it.
    serde_json::from_value(schema).unwrap_or_default()
}

fn constant_schema(type_: &str, value: impl Into<Value>) -> RefOr<Schema> {
    to_schema(json!({"type": type_, "enum": [value.into()]}))
}

pub(crate) fn always_true() -> RefOr<Schema> {
    constant_schema("boolean", true)
}

pub(crate) fn always_false() -> RefOr<Schema> {
    constant_schema("boolean", false)
}

pub(crate) fn always_zero() -> RefOr<Schema> {
    constant_schema("integer", 0)
}

pub(crate) fn always_one() -> RefOr<Schema> {
    constant_schema("integer", 1)
}

/// A query value; it may be empty.
pub(crate) fn query_name() -> RefOr<Schema> {
    to_schema(json!({"type": "string", "pattern": NAME_OR_NOTHING, "maxLength": MAX_NAME_LEN}))
}

fn body_schema(parts: &Value) -> RefOr<Schema> {
    let name = json!({"type": "string", "pattern": NAME, "maxLength": MAX_NAME_LEN});
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
        body_schema(
            &json!({"type": ["object", "null"], "properties": {"replicas": count_schema()}}),
        )
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

impl PartialSchema for Nothing {
    fn schema() -> RefOr<Schema> {
        to_schema(json!({"type": "null"}))
    }
}

impl ToSchema for Nothing {}
impl ToSchema for AddRequest {}
impl ToSchema for RemoveRequest {}
impl ToSchema for FailedRequest {}
