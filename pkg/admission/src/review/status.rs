//! The statuses of denials, in the wording of Kubernetes.

use di_api::{
    names,
    validation::{self, Fault},
};
use kube::core::{
    GroupVersionKind, Status,
    response::{StatusCause, StatusDetails, reason},
};

use super::{
    access_query::{AccessQuery, Scope},
    request::Request,
    value_count::MAX_VALUES,
};

/// The resource name of a kind; the plurals of all supported kinds end with `s`.
fn resource_name(kind: &GroupVersionKind) -> String {
    format!("{}s.{}", kind.kind.to_lowercase(), kind.group)
}

/// The webhook configuration sends a kind that the webhooks do not support.
pub(super) fn unsupported_kind(kind: &GroupVersionKind) -> Status {
    let message = format!(
        "the webhooks of {} do not support kind {} of {}: remove it from the webhook configuration",
        names::GROUP,
        kind.kind,
        kind.api_version()
    );
    Status::failure(&message, reason::BAD_REQUEST).with_code(400)
}

/// The object has faults.
pub(super) fn invalid_object(request: &Request, faults: &[Fault]) -> Status {
    let kind = &request.kind;
    let message = format!(
        "{}.{} {:?} is invalid: {}",
        kind.kind,
        kind.group,
        request.name,
        validation::summarize_faults(faults)
    );
    let causes = faults.iter().map(|fault| StatusCause {
        reason: fault.reason().to_owned(),
        message: fault.detail.clone(),
        field: fault.field.clone(),
    });
    let mut details = status_details(request);
    details.causes = causes.collect();
    Status::failure(&message, reason::INVALID)
        .with_code(422)
        .with_details(details)
}

/// The request has more JSON values than the webhooks decode.
pub(super) fn too_many_values(request: &Request) -> Status {
    let message = format!(
        "{} {:?} is too large: the request may have at most {} fields and list items, including the old object and \
         managedFields; shorten the lists of the object",
        resource_name(&request.kind),
        request.name,
        MAX_VALUES,
    );
    Status::failure(&message, reason::REQUEST_ENTITY_TOO_LARGE)
        .with_code(413)
        .with_details(status_details(request))
}

/// The author may not create pods in the scope of the object.
pub(super) fn forbidden_pods(request: &Request, query: &AccessQuery) -> Status {
    let remedy = match &query.scope {
        Scope::Namespace(namespace) => {
            format!("ask for a Role in the namespace {namespace:?} that allows creating pods")
        }
        Scope::Cluster => format!(
            "ask for a ClusterRole that allows creating pods in all namespaces, because jobs in all namespaces use the \
             AggregatorConfig in {}; or create an AggregatorConfig in the namespace of your jobs",
            names::SYSTEM_NAMESPACE
        ),
    };
    let message = format!(
        "{} {:?} is forbidden: User {:?} cannot create resource \"pods\" in API group \"\" {}: the orchestrator creates pods from its \
         templates, so their author needs this permission; {remedy}",
        resource_name(&request.kind),
        request.name,
        query.user_name(),
        query.scope_text(),
    );
    Status::failure(&message, reason::FORBIDDEN)
        .with_code(403)
        .with_details(status_details(request))
}

/// Policies of the cluster deny the pods of the object.
pub(super) fn denied_pods(request: &Request, denials: &[String]) -> Status {
    let message = format!(
        "{} {:?} is forbidden: policies of the cluster deny its pods: {}",
        resource_name(&request.kind),
        request.name,
        denials.join("; "),
    );
    Status::failure(&message, reason::FORBIDDEN)
        .with_code(403)
        .with_details(status_details(request))
}

/// The API server could not authorize the author.
pub(super) fn authorization_unavailable(request: &Request, query: &AccessQuery) -> Status {
    let message = format!(
        "{} {:?} is denied temporarily: cannot check with the API server whether User {:?} may create pods {}; try again, \
         and if it fails again, check the log of the webhooks in {}",
        resource_name(&request.kind),
        request.name,
        query.user_name(),
        query.scope_text(),
        names::SYSTEM_NAMESPACE
    );
    let mut details = status_details(request);
    // Makes Kubernetes clients retry automatically.
    details.retry_after_seconds = 1;
    Status::failure(&message, reason::SERVICE_UNAVAILABLE)
        .with_code(503)
        .with_details(details)
}

fn status_details(request: &Request) -> StatusDetails {
    StatusDetails {
        name: request.name.clone(),
        group: request.kind.group.clone(),
        kind: request.kind.kind.clone(),
        causes: Vec::new(),
        uid: String::new(),
        retry_after_seconds: 0,
    }
}
