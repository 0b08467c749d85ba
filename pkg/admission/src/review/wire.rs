//! `AdmissionReview` as it comes and goes. Only what is looked at is decoded, and the object once: it is as large as all the rest.

use std::fmt;

use json_patch::Patch;
use k8s_openapi::{ByteString, api::authentication::v1::UserInfo};
use kube::core::{GroupVersionKind, Status, admission::Operation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Answer;
use crate::{Error, Result};

const KIND: &str = "AdmissionReview";
/// Both have the same shape.
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Box<Request>>,
}

/// What is asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    /// Of the review; set by [`decode`].
    #[serde(skip)]
    version: &'static str,
    uid: String,
    pub(super) kind: GroupVersionKind,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) operation: Operation,
    #[serde(default)]
    pub(super) user_info: UserInfo,
    pub(super) object: Option<Value>,
    old_object: Option<Value>,
}

/// The request of an `AdmissionReview`.
pub(super) fn decode(body: &[u8]) -> Result<Request> {
    let malformed = |why: &dyn fmt::Display| Error::Malformed(why.to_string());
    let review: Incoming = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    let version = VERSIONS
        .into_iter()
        .find(|version| review.kind == KIND && review.api_version == *version);
    let Some(version) = version else {
        return Err(malformed(&format_args!(
            "cannot answer {:?} of {:?}, only AdmissionReview of admission.k8s.io/v1 and v1beta1",
            review.kind, review.api_version
        )));
    };
    let mut request = *review.request.ok_or_else(|| malformed(&"no request"))?;
    request.version = version;
    let carries_object = matches!(request.operation, Operation::Create | Operation::Update);
    if carries_object && !request.object.as_ref().is_some_and(Value::is_object) {
        return Err(malformed(&"no object"));
    }
    Ok(request)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outgoing<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Request {
    /// The object whose place the new one takes.
    pub(super) fn replaced(&self) -> Option<&Value> {
        let is_update = matches!(self.operation, Operation::Update);
        self.old_object.as_ref().filter(|_| is_update)
    }

    /// The name, or what it will begin with where the server is to make it up.
    pub(super) fn name(&self) -> &str {
        let metadata = self.object.as_ref().map(|object| &object["metadata"]);
        let of = |field: &str| metadata.and_then(|metadata| metadata[field].as_str());
        let candidates = [Some(self.name.as_str()), of("name"), of("generateName")];
        let mut named = candidates.into_iter().flatten().filter(|n| !n.is_empty());
        named.next().unwrap_or_default()
    }

    /// What is left to say something about once the objects have been judged.
    pub(super) fn without_objects(mut self) -> Self {
        self.name = self.name().to_owned();
        self.object = None;
        self.old_object = None;
        self
    }

    /// Lets it go on, and tells its author these.
    pub(super) fn allow(&self, warnings: Vec<String>) -> Result<Answer> {
        self.answer(Response {
            allowed: true,
            warnings,
            ..Response::default()
        })
    }

    /// Lets it go on, changed.
    pub(super) fn patch(&self, patch: &Patch) -> Result<Answer> {
        let patch = serde_json::to_vec(patch).map_err(Error::Encode)?;
        self.answer(Response {
            allowed: true,
            patch_type: Some("JSONPatch"),
            patch: Some(ByteString(patch)),
            ..Response::default()
        })
    }

    /// Refuses it.
    pub(super) fn deny(&self, status: &Status) -> Result<Answer> {
        self.answer(Response {
            status: Some(status),
            ..Response::default()
        })
    }

    fn answer<'a>(&'a self, mut response: Response<'a>) -> Result<Answer> {
        response.uid = &self.uid;
        let allowed = response.allowed;
        let review = Outgoing {
            api_version: self.version,
            kind: KIND,
            response,
        };
        let body = serde_json::to_vec(&review).map_err(Error::Encode)?;
        Ok(Answer { allowed, body })
    }
}
