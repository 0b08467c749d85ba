use json_patch::Patch;
use k8s_openapi::ByteString;
use kube::core::Status;
use serde::Serialize;

use super::request::{KIND, Request};
use crate::error::{Error, Result};

/// The response to an admission review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewResponse {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// HTTP status for the author of the request: 200 if it is allowed.
    pub code: u16,
    /// The `AdmissionReview` with the response as JSON, in the API version of the request.
    pub body: Vec<u8>,
}

impl ReviewResponse {
    /// Allows the request, with these warnings.
    pub(super) fn allow(request: &Request, warnings: Vec<String>) -> Result<Self> {
        let allowed = RawResponse {
            allowed: true,
            warnings,
            ..RawResponse::default()
        };
        allowed.encode(request)
    }

    /// Allows the request and patches the object.
    pub(super) fn allow_with_patch(request: &Request, patch: &Patch) -> Result<Self> {
        let patch = serde_json::to_vec(patch).map_err(Error::Encode)?;
        let patched = RawResponse {
            allowed: true,
            patch_type: Some("JSONPatch"),
            patch: Some(ByteString(patch)),
            ..RawResponse::default()
        };
        patched.encode(request)
    }

    /// Denies the request, with these warnings.
    pub(super) fn deny(request: &Request, status: &Status, warnings: Vec<String>) -> Result<Self> {
        let denied = RawResponse {
            status: Some(status),
            warnings,
            ..RawResponse::default()
        };
        denied.encode(request)
    }
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

impl<'a> RawResponse<'a> {
    fn encode(mut self, request: &'a Request) -> Result<ReviewResponse> {
        self.uid = &request.uid;
        let allowed = self.allowed;
        let code = self.status.map_or(200, |status| status.code);
        let review = OutgoingReview {
            api_version: request.version,
            kind: KIND,
            response: self,
        };
        let body = serde_json::to_vec(&review).map_err(Error::Encode)?;
        Ok(ReviewResponse {
            allowed,
            code,
            body,
        })
    }
}
