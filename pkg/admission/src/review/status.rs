//! Why a request is refused, as Kubernetes words it.

use di_api::{
    names,
    validation::{self, Fault},
};
use kube::core::{
    GroupVersionKind, Status,
    response::{StatusCause, StatusDetails, reason},
};

use super::wire::Request;

/// The plural of our kinds, which have the simplest one.
fn resource(kind: &GroupVersionKind) -> String {
    format!("{}s.{}", kind.kind.to_lowercase(), kind.group)
}

/// The webhook configuration asks about what is not ours.
pub(super) fn alien(kind: &GroupVersionKind) -> Status {
    let message = format!(
        "the webhooks of {} do not know {} of {}: the webhook configuration must not ask for it",
        names::GROUP,
        kind.kind,
        kind.api_version()
    );
    Status::failure(&message, reason::BAD_REQUEST).with_code(400)
}

/// The object cannot run.
pub(super) fn invalid(request: &Request, faults: &[Fault]) -> Status {
    let kind = &request.kind;
    let message = format!(
        "{}.{} {:?} is invalid: {}",
        kind.kind,
        kind.group,
        request.name(),
        validation::summary(faults)
    );
    let causes = faults.iter().map(|fault| StatusCause {
        reason: fault.reason().to_owned(),
        message: fault.detail.clone(),
        field: fault.field.clone(),
    });
    let mut details = details(request);
    details.causes = causes.collect();
    Status::failure(&message, reason::INVALID)
        .with_code(422)
        .with_details(details)
}

/// The author may not create the pods that would come of it.
pub(super) fn forbidden(request: &Request, place: &str, remedy: &str) -> Status {
    let message = format!(
        "{} {:?} is forbidden: User {:?} cannot create resource \"pods\" in API group \"\" {place}: the orchestrator makes pods of its \
         templates, so whoever sets them needs that right; {remedy}",
        resource(&request.kind),
        request.name(),
        user(request),
    );
    Status::failure(&message, reason::FORBIDDEN)
        .with_code(403)
        .with_details(details(request))
}

/// Nobody could say whether the author may create the pods that would come of it.
pub(super) fn undecided(request: &Request, place: &str) -> Status {
    let message = format!(
        "{} {:?} is refused for now: the API server could not be asked whether User {:?} may create pods {place}; try again, and if \
         this goes on, look at the log of the webhooks in {}",
        resource(&request.kind),
        request.name(),
        user(request),
        names::SYSTEM_NAMESPACE
    );
    let mut details = details(request);
    // Clients of Kubernetes then try again by themselves.
    details.retry_after_seconds = 1;
    Status::failure(&message, reason::SERVICE_UNAVAILABLE)
        .with_code(503)
        .with_details(details)
}

fn user(request: &Request) -> &str {
    request.user_info.username.as_deref().unwrap_or_default()
}

fn details(request: &Request) -> StatusDetails {
    StatusDetails {
        name: request.name().to_owned(),
        group: request.kind.group.clone(),
        kind: request.kind.kind.clone(),
        causes: Vec::new(),
        uid: String::new(),
        retry_after_seconds: 0,
    }
}
