//! Checks that the author of a template may create pods. See docs/decisions/0010.

use super::{
    access_query::{AccessQuery, Scope},
    request::Request,
    response::ReviewResponse,
    status,
};
use crate::error::Result;

/// The authorization that a valid object needs: its author must be allowed to create pods.
#[derive(Clone, Debug)]
pub struct Authorization {
    request: Request,
    access_query: AccessQuery,
    warnings: Vec<String>,
}

impl Authorization {
    pub(super) fn new(mut request: Request, scope: Scope, warnings: Vec<String>) -> Self {
        let user = std::mem::take(&mut request.user);
        Self {
            request,
            access_query: AccessQuery { user, scope },
            warnings,
        }
    }

    /// The query for the API server.
    pub fn access_query(&self) -> &AccessQuery {
        &self.access_query
    }

    /// The response if the author may create pods.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub fn allow_response(self) -> Result<ReviewResponse> {
        ReviewResponse::allow(&self.request, self.warnings)
    }

    /// The response if the author may not create pods.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub fn deny_response(&self) -> Result<ReviewResponse> {
        let forbidden = status::forbidden_pods(&self.request, &self.access_query);
        ReviewResponse::deny(&self.request, &forbidden, Vec::new())
    }

    /// The response if the API server could not authorize the author.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub fn error_response(&self) -> Result<ReviewResponse> {
        let unavailable = status::authorization_unavailable(&self.request, &self.access_query);
        ReviewResponse::deny(&self.request, &unavailable, Vec::new())
    }
}
