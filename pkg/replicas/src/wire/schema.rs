//! Schemas of what the parsers beside this file take, and of the fixed fields of answers.

use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

use super::{AddRequest, FailedRequest, MAX_NAME_LEN, Nothing, RemoveRequest};

/// Names as [`super::name`] takes them.
const NAME: &str = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";
const NAME_OR_NOTHING: &str = "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$";
/// Quantities as Kubernetes writes them; [`di_api::quantity`] is stricter about their size only.
const QUANTITY: &str = "^([0-9]{1,15}(\\.[0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi)?)?$";
/// Small enough to be below any limit.
const COUNT: &str = "^[0-9]{1,2}$";

fn of(schema: Value) -> RefOr<Schema> {
    // Fixed text, which the tests of the document read.
    serde_json::from_value(schema).unwrap_or_default()
}

fn constant_schema(type_: &str, value: impl Into<Value>) -> RefOr<Schema> {
    of(json!({"type": type_, "enum": [value.into()]}))
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

/// A query value, which may be empty.
pub(crate) fn query_name() -> RefOr<Schema> {
    of(json!({"type": "string", "pattern": NAME_OR_NOTHING, "maxLength": MAX_NAME_LEN}))
}

fn body(parts: &Value) -> RefOr<Schema> {
    let name = json!({"type": "string", "pattern": NAME, "maxLength": MAX_NAME_LEN});
    let mut schema = json!({
        "type": "object",
        "required": ["namespace", "coordinator"],
        "properties": {"namespace": name, "coordinator": name},
    });
    for field in ["collectors", "learners"] {
        schema["properties"][field].clone_from(parts);
    }
    of(schema)
}

fn count() -> Value {
    json!({"anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": COUNT},
        {"type": "null"},
    ]})
}

fn quantity(number: &Value) -> Value {
    json!({"anyOf": [number, {"type": "string", "pattern": QUANTITY}, {"type": "null"}]})
}

impl PartialSchema for AddRequest {
    fn schema() -> RefOr<Schema> {
        let amount =
            quantity(&json!({"type": "number", "minimum": 0, "maximum": 1_000_000_000_000_i64}));
        let whole = json!({"anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 1_000_000},
            {"type": "string", "pattern": "^[0-9]{0,6}$"},
            {"type": "null"},
        ]});
        body(&json!({
            "type": ["object", "null"],
            "properties": {
                "replicas": count(),
                "cpus": amount, "cpu": amount, "memory": amount,
                "gpus": whole, "gpu": whole,
            },
        }))
    }
}

impl PartialSchema for RemoveRequest {
    fn schema() -> RefOr<Schema> {
        body(&json!({"type": ["object", "null"], "properties": {"replicas": count()}}))
    }
}

impl PartialSchema for FailedRequest {
    fn schema() -> RefOr<Schema> {
        body(&json!({
            "type": ["array", "null"],
            "items": {"type": "string", "description": "Name or URL of a pod"},
        }))
    }
}

impl PartialSchema for Nothing {
    fn schema() -> RefOr<Schema> {
        of(json!({"type": "null"}))
    }
}

impl ToSchema for Nothing {}
impl ToSchema for AddRequest {}
impl ToSchema for RemoveRequest {}
impl ToSchema for FailedRequest {}
