//! OpenAPI schemas of names and of the constant fields of responses.

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, schema::Schema};

use super::name::MAX_NAME_LEN;

/// Names that [`super::name::parse_name`] accepts.
const NAME: &str = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";
const NAME_OR_NOTHING: &str = "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$";

pub(super) fn to_schema(schema: Value) -> RefOr<Schema> {
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

/// A name in a request body.
pub(super) fn body_name() -> Value {
    json!({"type": "string", "pattern": NAME, "maxLength": MAX_NAME_LEN})
}

/// A generation in a query; it may be empty.
pub(crate) fn query_generation() -> RefOr<Schema> {
    to_schema(json!({"type": "string", "pattern": "^[0-9]{0,18}$"}))
}

/// A wait in a query; it may be empty.
pub(crate) fn query_wait() -> RefOr<Schema> {
    to_schema(json!({"type": "string", "pattern": "^([0-9]{1,5}s)?$"}))
}

/// A query value; it may be empty.
pub(crate) fn query_name() -> RefOr<Schema> {
    to_schema(json!({"type": "string", "pattern": NAME_OR_NOTHING, "maxLength": MAX_NAME_LEN}))
}
