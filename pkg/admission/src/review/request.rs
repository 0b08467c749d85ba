//! Decodes the request of an `AdmissionReview`. Only the needed fields are decoded, and only once,
//! because objects are large.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use di_api::{DIJob, names, validation::Decoded};
use kube::core::{GroupVersionKind, ObjectMeta, admission::Operation};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use crate::error::{Error, Result};

pub(super) const KIND: &str = "AdmissionReview";
/// Both versions have the same fields.
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// A request without its objects.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// API version of the review.
    pub(super) version: &'static str,
    pub(super) uid: String,
    pub(super) kind: GroupVersionKind,
    /// Name of the object, or its `generateName`.
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) user: User,
}

/// A kind that the webhooks support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    DIJob,
    AggregatorConfig,
}

/// The author of the request, as authenticated by the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(super) struct User {
    pub(super) username: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) extra: Option<BTreeMap<String, Vec<String>>>,
}

impl Request {
    /// Whether the kind belongs to the group of the orchestrator, in a served version.
    pub(super) fn is_supported(&self) -> bool {
        let versions = [names::VERSION, names::LEGACY_VERSION];
        self.kind.group == names::GROUP && versions.contains(&self.kind.version.as_str())
    }

    /// The kind of the object; `None` if the webhooks do not support it.
    pub(super) fn supported_kind(&self) -> Option<Kind> {
        match self.kind.kind.as_str() {
            "DIJob" if self.is_supported() => Some(Kind::DIJob),
            "AggregatorConfig" if self.is_supported() => Some(Kind::AggregatorConfig),
            _ => None,
        }
    }
}

/// A review with objects decoded as `O`.
pub(super) struct Review<O> {
    pub(super) request: Request,
    /// The new object; `None` for operations without one.
    pub(super) object: Option<O>,
    /// The old object of an update.
    pub(super) replaced: Option<O>,
}

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
    let is_job = request.supported_kind() == Some(Kind::DIJob);
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
