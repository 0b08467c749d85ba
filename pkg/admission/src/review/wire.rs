//! `AdmissionReview` as it comes and goes. Only what is looked at is decoded, and that once: objects are as large as all the rest.

use std::{borrow::Cow, fmt};

use di_api::{DIJob, names, validation::Decoded};
use json_patch::Patch;
use k8s_openapi::ByteString;
use kube::core::{GroupVersionKind, ObjectMeta, Status, admission::Operation};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::Value;

use super::{Answer, user::User};
use crate::{Error, Result};

const KIND: &str = "AdmissionReview";
/// Both have the same shape.
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming<'a, O, P> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    request: Option<Asked<O, P>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<O, P> {
    uid: String,
    kind: GroupVersionKind,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: P,
    #[serde(default)]
    user_info: User,
    // A job takes kilobytes even if it is empty, and would be moved with all that holds it.
    object: Option<Box<O>>,
    old_object: Option<Box<O>>,
}

/// Creation alone: a review of anything else is given up before its objects are read, which come after the operation.
#[derive(Deserialize)]
enum Create {
    #[serde(rename = "CREATE")]
    Create,
}

/// What is asked, its objects aside.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Of the review.
    version: &'static str,
    uid: String,
    pub(super) kind: GroupVersionKind,
    /// The name, or what it will begin with where the server is to make it up.
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) user: User,
}

/// A review of objects that are read as `O`.
pub(super) struct Review<O> {
    pub(super) request: Request,
    /// Nothing where the operation leaves none.
    pub(super) object: Option<O>,
    /// The object whose place the new one takes.
    pub(super) replaced: Option<O>,
}

/// An object as far as reviews themselves look at it.
pub(super) trait Object: for<'de> Deserialize<'de> {
    /// Whether it is one at all.
    fn is_object(&self) -> bool {
        true
    }

    /// Its `metadata.name`, or the beginning of what it will be.
    fn name(&self) -> &str;
}

impl Object for Value {
    fn is_object(&self) -> bool {
        Self::is_object(self)
    }

    fn name(&self) -> &str {
        let of = |field: &str| self["metadata"][field].as_str();
        of("name")
            .or_else(|| of("generateName"))
            .unwrap_or_default()
    }
}

impl Object for Decoded<DIJob> {
    fn name(&self) -> &str {
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

/// An object of which is read only how it is called, and whether it is being deleted.
#[derive(Deserialize)]
pub(super) struct Outline {
    #[serde(default)]
    metadata: Called,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Called {
    name: Option<String>,
    generate_name: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
}

impl Outline {
    pub(super) fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Object for Outline {
    fn name(&self) -> &str {
        let Called {
            name,
            generate_name,
            ..
        } = &self.metadata;
        name.as_deref()
            .or(generate_name.as_deref())
            .unwrap_or_default()
    }
}

/// The review that `body` is.
pub(super) fn decode<O: Object>(body: &[u8]) -> Result<Review<O>> {
    let Parts {
        request,
        operation,
        object,
        old_object,
    } = read::<O, Operation>(body)?;
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
    let object = *object.ok_or_else(|| malformed(&"no object"))?;
    Ok(Review {
        request,
        object: Some(object),
        replaced,
    })
}

/// A review of a new job that can be read as one, which nearly all are. Any other is for [`decode`].
pub(super) fn new_job(body: &[u8]) -> Option<(Request, Box<Decoded<DIJob>>)> {
    let Parts {
        request,
        operation: Create::Create,
        object,
        ..
    } = read::<Decoded<DIJob>, Create>(body).ok()?;
    let is_job = request.is_ours() && request.kind.kind == "DIJob";
    Some((request, object.filter(|_| is_job)?))
}

/// A request, and what is left of it.
struct Parts<O, P> {
    request: Request,
    operation: P,
    object: Option<Box<O>>,
    old_object: Option<Box<O>>,
}

fn read<'a, O: Object, P: Deserialize<'a>>(body: &'a [u8]) -> Result<Parts<O, P>> {
    let review: Incoming<'_, O, P> =
        serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    let version = VERSIONS
        .into_iter()
        .find(|version| review.kind == KIND && review.api_version == *version);
    let Some(version) = version else {
        return Err(malformed(&format_args!(
            "cannot answer {:?} of {:?}, only AdmissionReview of admission.k8s.io/v1 and v1beta1",
            review.kind, review.api_version
        )));
    };
    let asked = review.request.ok_or_else(|| malformed(&"no request"))?;
    let name = match (asked.name, &asked.object) {
        (name, Some(object)) if name.is_empty() => object.name().to_owned(),
        (name, _) => name,
    };
    let request = Request {
        version,
        uid: asked.uid,
        kind: asked.kind,
        name,
        namespace: asked.namespace,
        user: asked.user_info,
    };
    Ok(Parts {
        request,
        operation: asked.operation,
        object: asked.object,
        old_object: asked.old_object,
    })
}

pub(super) fn malformed(why: &dyn fmt::Display) -> Error {
    Error::Malformed(why.to_string())
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
    /// Whether it is about a kind of our group, of a version that there is.
    pub(super) fn is_ours(&self) -> bool {
        let versions = [names::VERSION, names::LEGACY_VERSION];
        self.kind.group == names::GROUP && versions.contains(&self.kind.version.as_str())
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
        self.deny_and_warn(status, Vec::new())
    }

    /// Refuses it, and tells its author these besides.
    pub(super) fn deny_and_warn(&self, status: &Status, warnings: Vec<String>) -> Result<Answer> {
        self.answer(Response {
            status: Some(status),
            warnings,
            ..Response::default()
        })
    }

    fn answer<'a>(&'a self, mut response: Response<'a>) -> Result<Answer> {
        response.uid = &self.uid;
        let allowed = response.allowed;
        let code = response.status.map_or(200, |status| status.code);
        let review = Outgoing {
            api_version: self.version,
            kind: KIND,
            response,
        };
        let body = serde_json::to_vec(&review).map_err(Error::Encode)?;
        Ok(Answer {
            allowed,
            code,
            body,
        })
    }
}
