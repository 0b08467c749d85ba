//! Why a request is refused, as Kubernetes words it.

use di_api::{
    names,
    validation::{self, Fault},
};
use kube::core::{
    GroupVersionKind, Status,
    response::{StatusCause, StatusDetails, reason},
};

use super::{
    claim::{Question, Scope},
    weight,
    wire::Request,
};

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
        request.name,
        validation::summarize_faults(faults)
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

/// There is more in the object than may be decoded.
pub(super) fn too_heavy(request: &Request) -> Status {
    let message = format!(
        "{} {:?} is too large: it may have {} fields and list items, those of the object that it replaces and of managedFields \
         among them; shorten its lists",
        resource(&request.kind),
        request.name,
        weight::MOST,
    );
    Status::failure(&message, reason::REQUEST_ENTITY_TOO_LARGE)
        .with_code(413)
        .with_details(details(request))
}

/// The author may not create the pods that would come of it.
pub(super) fn forbidden(request: &Request, question: &Question) -> Status {
    let remedy = match &question.scope {
        Scope::Namespace(namespace) => {
            format!("ask for a Role in the namespace {namespace:?} that allows to create pods")
        }
        Scope::Cluster => format!(
            "ask for a ClusterRole that allows to create pods in all namespaces, as administrators have, because jobs of all \
             namespaces use what is in {}; or make your own in the namespace of your jobs",
            names::SYSTEM_NAMESPACE
        ),
    };
    let message = format!(
        "{} {:?} is forbidden: User {:?} cannot create resource \"pods\" in API group \"\" {}: the orchestrator makes pods of its \
         templates, so whoever sets them needs that right; {remedy}",
        resource(&request.kind),
        request.name,
        question.username(),
        question.place(),
    );
    Status::failure(&message, reason::FORBIDDEN)
        .with_code(403)
        .with_details(details(request))
}

/// Nobody could say whether the author may create the pods that would come of it.
pub(super) fn undecided(request: &Request, question: &Question) -> Status {
    let message = format!(
        "{} {:?} is refused for now: the API server could not be asked whether User {:?} may create pods {}; try again, and if \
         this goes on, look at the log of the webhooks in {}",
        resource(&request.kind),
        request.name,
        question.username(),
        question.place(),
        names::SYSTEM_NAMESPACE
    );
    let mut details = details(request);
    // Clients of Kubernetes then try again by themselves.
    details.retry_after_seconds = 1;
    Status::failure(&message, reason::SERVICE_UNAVAILABLE)
        .with_code(503)
        .with_details(details)
}

fn details(request: &Request) -> StatusDetails {
    StatusDetails {
        name: request.name.clone(),
        group: request.kind.group.clone(),
        kind: request.kind.kind.clone(),
        causes: Vec::new(),
        uid: String::new(),
        retry_after_seconds: 0,
    }
}
