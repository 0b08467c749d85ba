//! Decodes and encodes `AdmissionReview`. Only the needed fields are decoded, and only once,
//! because objects are large.

use std::{borrow::Cow, fmt};

use di_api::{DIJob, names, validation::Decoded};
use json_patch::Patch;
use k8s_openapi::ByteString;
use kube::core::{GroupVersionKind, ObjectMeta, Status, admission::Operation};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::Value;

use super::{ReviewResponse, user::User};
use crate::{Error, Result};

const KIND: &str = "AdmissionReview";
/// Both versions have the same fields.
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IncomingReview<'a, O, P> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    request: Option<RawRequest<O, P>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest<O, P> {
    uid: String,
    kind: GroupVersionKind,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: P,
    #[serde(default)]
    user_info: User,
    // Boxed: a decoded job has a size of kilobytes, and this struct is moved several times.
    object: Option<Box<O>>,
    old_object: Option<Box<O>>,
}

/// Accepts only CREATE. The operation precedes the objects, so other reviews fail before their
/// objects are decoded.
#[derive(Deserialize)]
enum Create {
    #[serde(rename = "CREATE")]
    Create,
}

/// A request without its objects.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// API version of the review.
    version: &'static str,
    uid: String,
    pub(super) kind: GroupVersionKind,
    /// Name of the object, or its `generateName`.
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) user: User,
}

/// A review with objects decoded as `O`.
pub(super) struct Review<O> {
    pub(super) request: Request,
    /// The new object; `None` for operations without one.
    pub(super) object: Option<O>,
    /// The old object of an update.
    pub(super) replaced: Option<O>,
}

/// The part of an object that decoding a review needs.
pub(super) trait Object: for<'de> Deserialize<'de> {
    /// Whether the value is a JSON object.
    fn is_object(&self) -> bool {
        true
    }

    /// The `metadata.name`, or else the `metadata.generateName`.
    fn object_name(&self) -> &str;
}

impl Object for Value {
    fn is_object(&self) -> bool {
        Self::is_object(self)
    }

    fn object_name(&self) -> &str {
        let metadata = |field: &str| self["metadata"][field].as_str();
        metadata("name")
            .or_else(|| metadata("generateName"))
            .unwrap_or_default()
    }
}

impl Object for Decoded<DIJob> {
    fn object_name(&self) -> &str {
        let ObjectMeta {
            name,
            generate_name,
            ..
        } = &self.object().metadata;
        name.as_deref()
            .or(generate_name.as_deref())
            .unwrap_or_default()
    }
}

/// An object that is decoded only to its name and deletion timestamp.
#[derive(Deserialize)]
pub(super) struct ObjectMetaOnly {
    #[serde(default)]
    metadata: MetaFields,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetaFields {
    name: Option<String>,
    generate_name: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
}

impl ObjectMetaOnly {
    pub(super) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Object for ObjectMetaOnly {
    fn object_name(&self) -> &str {
        let MetaFields {
            name,
            generate_name,
            ..
        } = &self.metadata;
        name.as_deref()
            .or(generate_name.as_deref())
            .unwrap_or_default()
    }
}

/// Decodes the review in `body`.
pub(super) fn decode_review<O: Object>(body: &[u8]) -> Result<Review<O>> {
    let RequestParts {
        request,
        operation,
        object,
        old_object,
    } = read_request::<O, Operation>(body)?;
    let replaced = match operation {
        Operation::Create => None,
        Operation::Update => old_object.map(|old| *old),
        Operation::Delete | Operation::Connect => {
            return Ok(Review {
                request,
                object: None,
                replaced: None,
            });
        }
    };
    let object = object.filter(|object| object.is_object());
    let object = *object.ok_or_else(|| malformed_error(&"the request has no object"))?;
    Ok(Review {
        request,
        object: Some(object),
        replaced,
    })
}

/// Decodes a review of a new job, which is the usual case. Other reviews need [`decode_review`].
/// See docs/decisions/0013.
pub(super) fn decode_new_job(body: &[u8]) -> Option<(Request, Box<Decoded<DIJob>>)> {
    let RequestParts {
        request,
        operation: Create::Create,
        object,
        ..
    } = read_request::<Decoded<DIJob>, Create>(body).ok()?;
    let is_job = request.is_supported() && request.kind.kind == "DIJob";
    Some((request, object.filter(|_| is_job)?))
}

/// A decoded request and its objects.
struct RequestParts<O, P> {
    request: Request,
    operation: P,
    object: Option<Box<O>>,
    old_object: Option<Box<O>>,
}

fn read_request<'a, O: Object, P: Deserialize<'a>>(body: &'a [u8]) -> Result<RequestParts<O, P>> {
    let review: IncomingReview<'_, O, P> =
        serde_json::from_slice(body).map_err(|error| malformed_error(&error))?;
    let version = VERSIONS
        .into_iter()
        .find(|version| review.kind == KIND && review.api_version == *version);
    let Some(version) = version else {
        return Err(malformed_error(&format_args!(
            "{:?} of {:?} is not supported, only AdmissionReview of admission.k8s.io/v1 and v1beta1",
            review.kind, review.api_version
        )));
    };
    let raw = review
        .request
        .ok_or_else(|| malformed_error(&"the review has no request"))?;
    let name = match (raw.name, &raw.object) {
        (name, Some(object)) if name.is_empty() => object.object_name().to_owned(),
        (name, _) => name,
    };
    let request = Request {
        version,
        uid: raw.uid,
        kind: raw.kind,
        name,
        namespace: raw.namespace,
        user: raw.user_info,
    };
    Ok(RequestParts {
        request,
        operation: raw.operation,
        object: raw.object,
        old_object: raw.old_object,
    })
}

pub(super) fn malformed_error(reason: &dyn fmt::Display) -> Error {
    Error::Malformed(reason.to_string())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: RawResponse<'a>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RawResponse<'a> {
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
    /// Whether the kind belongs to the group of the orchestrator, in a served version.
    pub(super) fn is_supported(&self) -> bool {
        let versions = [names::VERSION, names::LEGACY_VERSION];
        self.kind.group == names::GROUP && versions.contains(&self.kind.version.as_str())
    }

    /// The response that allows the request, with these warnings.
    pub(super) fn allow(&self, warnings: Vec<String>) -> Result<ReviewResponse> {
        self.build_response(RawResponse {
            allowed: true,
            warnings,
            ..RawResponse::default()
        })
    }

    /// The response that allows the request and patches the object.
    pub(super) fn allow_with_patch(&self, patch: &Patch) -> Result<ReviewResponse> {
        let patch = serde_json::to_vec(patch).map_err(Error::Encode)?;
        self.build_response(RawResponse {
            allowed: true,
            patch_type: Some("JSONPatch"),
            patch: Some(ByteString(patch)),
            ..RawResponse::default()
        })
    }

    /// The response that denies the request.
    pub(super) fn deny(&self, status: &Status) -> Result<ReviewResponse> {
        self.deny_and_warn(status, Vec::new())
    }

    /// The response that denies the request, with these warnings.
    pub(super) fn deny_and_warn(
        &self,
        status: &Status,
        warnings: Vec<String>,
    ) -> Result<ReviewResponse> {
        self.build_response(RawResponse {
            status: Some(status),
            warnings,
            ..RawResponse::default()
        })
    }

    fn build_response<'a>(&'a self, mut response: RawResponse<'a>) -> Result<ReviewResponse> {
        response.uid = &self.uid;
        let allowed = response.allowed;
        let code = response.status.map_or(200, |status| status.code);
        let review = OutgoingReview {
            api_version: self.version,
            kind: KIND,
            response,
        };
        let body = serde_json::to_vec(&review).map_err(Error::Encode)?;
        Ok(ReviewResponse {
            allowed,
            code,
            body,
        })
    }
}
