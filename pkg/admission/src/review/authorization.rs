//! Checks that the author of a template may create pods. See docs/decisions/0010.

use di_api::validation::Fault;

use super::{
    access_query::{AccessQuery, Scope},
    request::Request,
    response::ReviewResponse,
    status,
    validation::ValidObject,
};
use crate::error::Result;

/// The authorization that a valid object needs: its author must be allowed to create pods.
#[derive(Clone, Debug)]
pub struct Authorization {
    request: Request,
    access_query: AccessQuery,
    warnings: Vec<String>,
    object: Option<ValidObject>,
    unknown_pod_fields: Vec<Fault>,
}

/// Result of a dry run of the pods of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRunReport {
    /// The API server rejects the pods of this object always.
    pub faults: Vec<Fault>,
    /// Policies reject the pods now, and the administrators want such objects to be denied.
    pub denials: Vec<String>,
    /// The pods may be rejected.
    pub warnings: Vec<String>,
    /// Templates whose pods the API server accepts, each with the fields that it ignores.
    pub accepted: Vec<(String, Vec<String>)>,
}

impl Authorization {
    pub(super) fn new(
        mut request: Request,
        scope: Scope,
        warnings: Vec<String>,
        object: Option<ValidObject>,
        unknown_pod_fields: Vec<Fault>,
    ) -> Self {
        let user = std::mem::take(&mut request.user);
        Self {
            request,
            access_query: AccessQuery { user, scope },
            warnings,
            object,
            unknown_pod_fields,
        }
    }

    /// Namespace of the object.
    pub fn namespace(&self) -> &str {
        &self.request.namespace
    }

    /// Takes the object; it is not part of the response.
    pub fn take_object(&mut self) -> Option<ValidObject> {
        self.object.take()
    }

    /// Takes the fields of the pod templates that this program does not know.
    pub fn take_unknown_pod_fields(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.unknown_pod_fields)
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

    /// The response if the author may create pods, and a dry run of them has this result.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub fn dry_run_response(mut self, report: DryRunReport) -> Result<ReviewResponse> {
        self.warnings.extend(report.warnings);
        let denial = if !report.faults.is_empty() {
            status::invalid_object(&self.request, &report.faults)
        } else if !report.denials.is_empty() {
            status::denied_pods(&self.request, &report.denials)
        } else {
            return self.allow_response();
        };
        ReviewResponse::deny(&self.request, &denial, self.warnings)
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
