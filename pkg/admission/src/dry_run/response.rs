//! What the responses of the API server mean for the object.

use std::sync::Arc;

use di_api::validation::{Fault, FaultKind, truncate_text};
use kube::core::Status;

use super::field_map::FieldMap;
use crate::review::DryRunReport;

/// Maximum length of a warning in bytes. API servers truncate longer ones if there are many.
const MAX_WARNING_LEN: usize = 256;
/// Maximum length of a message of the API server in a denial, in bytes.
const MAX_MESSAGE_LEN: usize = 1_024;
/// Maximum number of faults of one object.
const MAX_FAULTS: usize = 1_000;

/// The response to the creation of a pod: accepted without these fields, or a failure.
pub(super) type PodResponse = Result<Arc<Vec<String>>, Arc<Status>>;

/// The effect of policies that deny pods: admission plugins and other webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyDenials {
    /// The author gets a warning: the policy may allow the pods later.
    #[default]
    Warn,
    /// The object is denied.
    Refuse,
}

/// The meaning of an response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodCheck {
    /// The API server would create the pod, without these fields. They are `None` if the response does
    /// not have the pod.
    Accepted(Option<Vec<String>>),
    /// The API server never creates this pod.
    Invalid(Vec<Fault>),
    /// A policy denies the pod now; the message says why.
    Denied(String),
    /// It is not known whether the API server would create the pod; the message says why.
    Unknown(String),
}

/// Whether the response depends on the pod and the version of the API server only.
pub(super) fn is_definite(response: &PodResponse) -> bool {
    response
        .as_ref()
        .err()
        .is_none_or(|status| is_invalid(status))
}

/// Whether the API server's own validation failed. Policies can also use the code 422: webhooks name
/// themselves, and a `ValidatingAdmissionPolicy` names no field.
fn is_invalid(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422
        && !status.message.starts_with("admission webhook ")
        && causes.any(|cause| !cause.field.is_empty())
}

/// The meaning of an response, with the fields of the object.
pub(super) fn interpret_response(response: &PodResponse, fields: &FieldMap) -> PodCheck {
    let status = match response {
        Ok(ignored) => {
            let ignored = ignored.iter().map(|field| fields.object_field(field));
            return PodCheck::Accepted(Some(ignored.collect()));
        }
        Err(status) => status,
    };
    let message = &status.message;
    match status.code {
        _ if is_invalid(status) => PodCheck::Invalid(faults_of_causes(status, fields)),
        400 if message.contains("cannot be handled as a Pod") => {
            PodCheck::Invalid(faults_of_decoding(message, fields))
        }
        // The pod exists because the job runs. The API server finds that out last.
        409 if status.reason == "AlreadyExists" => PodCheck::Accepted(None),
        403 | 422 => PodCheck::Denied(message.clone()),
        400..500 if is_denial(message) => PodCheck::Denied(message.clone()),
        _ => PodCheck::Unknown(message.clone()),
    }
}

/// Whether a webhook or a `ValidatingAdmissionPolicy` denied the pod.
fn is_denial(message: &str) -> bool {
    message.contains(" denied the request") || message.contains(" denied request")
}

fn faults_of_causes(status: &Status, fields: &FieldMap) -> Vec<Fault> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let faults = causes.map(|cause| Fault {
        kind: fault_kind(&cause.reason),
        field: fields.object_field(&cause.field),
        detail: truncate_text(&cause.message, MAX_MESSAGE_LEN),
    });
    faults.collect()
}

fn fault_kind(reason: &str) -> FaultKind {
    match reason {
        "FieldValueRequired" => FaultKind::Required,
        "FieldValueNotSupported" => FaultKind::NotSupported,
        "FieldValueDuplicate" => FaultKind::Duplicate,
        "FieldValueNotFound" => FaultKind::NotFound,
        "FieldValueForbidden" => FaultKind::Forbidden,
        "FieldValueTooLong" => FaultKind::TooLong,
        "FieldValueTooMany" => FaultKind::TooMany,
        _ => FaultKind::Invalid,
    }
}

/// The faults of a pod that the API server cannot decode: unknown fields, or a wrong type in the
/// template.
fn faults_of_decoding(message: &str, fields: &FieldMap) -> Vec<Fault> {
    let unknown = message.split("unknown field \"").skip(1);
    let unknown = unknown.filter_map(|rest| Some(rest.split_once('"')?.0));
    let faults = unknown.map(|field| Fault {
        kind: FaultKind::Invalid,
        field: fields.object_field(field),
        detail: "Invalid value: unknown field".to_owned(),
    });
    let faults: Vec<_> = faults.collect();
    if !faults.is_empty() {
        return faults;
    }
    let reason = message.split_once("cannot be handled as a Pod: ");
    let reason = reason.map_or(message, |(_, reason)| reason);
    vec![Fault {
        kind: FaultKind::Invalid,
        field: fields.template.clone(),
        detail: truncate_text(&format!("Invalid value: {reason}"), MAX_MESSAGE_LEN),
    }]
}

/// Merges the checks on all pods of an object, each with the path of its template.
pub(super) fn build_report(
    checks: Vec<(String, PodCheck)>,
    denials: PolicyDenials,
) -> DryRunReport {
    let mut report = DryRunReport::default();
    for (template, check) in checks {
        match check {
            PodCheck::Accepted(None) => {}
            PodCheck::Accepted(Some(ignored)) => report.accepted.push((template, ignored)),
            PodCheck::Invalid(faults) => {
                for fault in faults {
                    // Pods of several roles have the same volumes of the job.
                    if report.faults.len() < MAX_FAULTS && !report.faults.contains(&fault) {
                        report.faults.push(fault);
                    }
                }
            }
            PodCheck::Denied(message) if denials == PolicyDenials::Refuse => {
                let message = format!("{template}: {}", on_one_line(&message));
                report
                    .denials
                    .push(truncate_text(&message, MAX_MESSAGE_LEN));
            }
            PodCheck::Denied(message) => {
                report
                    .warnings
                    .push(warning(&template, "pod would be denied now", &message));
            }
            PodCheck::Unknown(message) => {
                report
                    .warnings
                    .push(warning(&template, "pod not validated", &message));
            }
        }
    }
    report
}

fn warning(template: &str, effect: &str, message: &str) -> String {
    let warning = format!("{template}: {effect}: {}", on_one_line(message));
    truncate_text(&warning, MAX_WARNING_LEN)
}

/// API servers drop warnings with control characters.
fn on_one_line(message: &str) -> String {
    let words: Vec<_> = message.split_whitespace().collect();
    words.join(" ").replace(char::is_control, "")
}

#[cfg(test)]
mod tests {
    use di_api::PodTemplate;
    use di_plan::NewPod;
    use serde_json::{Value, json};

    use super::*;

    fn fields() -> FieldMap {
        FieldMap::new(
            "T".to_owned(),
            &PodTemplate::default(),
            None,
            &NewPod::default(),
        )
    }

    fn failure(code: u16, reason: &str, message: &str, causes: &Value) -> PodResponse {
        let status = json!({
            "status": "Failure", "code": code, "reason": reason, "message": message,
            "details": {"causes": causes},
        });
        Err(Arc::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn answer_has_check_by_code_and_message() {
        let field = json!([{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}]);
        let none = json!([]);
        let without_field = json!([{"message": "failed expression"}]);
        for (code, reason, message, causes, expected) in [
            (422, "Invalid", "Pod \"p\" is invalid", &field, "invalid"),
            (
                422,
                "Invalid",
                "admission webhook \"a.b\" denied the request: no",
                &field,
                "denied",
            ),
            (
                422,
                "Invalid",
                "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'a' denied request: no",
                &without_field,
                "denied",
            ),
            (
                403,
                "Forbidden",
                "pods \"p\" is forbidden: exceeded quota",
                &none,
                "denied",
            ),
            (
                400,
                "BadRequest",
                "admission webhook \"a.b\" denied the request: no",
                &none,
                "denied",
            ),
            (
                413,
                "RequestEntityTooLarge",
                "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'a' denied request: no",
                &without_field,
                "denied",
            ),
            (
                400,
                "BadRequest",
                "admission webhook \"a.b\" does not support dry run",
                &none,
                "unknown",
            ),
            (
                400,
                "BadRequest",
                "Pod in version \"v1\" cannot be handled as a Pod: no",
                &none,
                "invalid",
            ),
            (
                404,
                "NotFound",
                "namespaces \"rl\" not found",
                &none,
                "unknown",
            ),
            (409, "Conflict", "try again", &none, "unknown"),
            (
                409,
                "AlreadyExists",
                "pods \"p\" already exists",
                &none,
                "accepted",
            ),
            (429, "TooManyRequests", "slow down", &none, "unknown"),
            (
                500,
                "InternalError",
                "failed calling webhook",
                &none,
                "unknown",
            ),
        ] {
            let response = failure(code, reason, message, causes);
            let check = match interpret_response(&response, &fields()) {
                PodCheck::Accepted(_) => "accepted",
                PodCheck::Invalid(_) => "invalid",
                PodCheck::Denied(_) => "denied",
                PodCheck::Unknown(_) => "unknown",
            };
            assert_eq!(check, expected, "{code} {message}");
            let is_cached = code == 422 && expected == "invalid";
            assert_eq!(is_definite(&response), is_cached, "{code} {message}");
        }
        let ignored = || Ok(Arc::new(vec!["spec.new".to_owned()]));
        let in_template = PodCheck::Accepted(Some(vec!["T.spec.new".to_owned()]));
        assert_eq!(interpret_response(&ignored(), &fields()), in_template);
        assert!(is_definite(&ignored()));
    }

    #[test]
    fn causes_and_unknown_fields_become_faults() {
        let cause =
            |reason: &str, field: &str| json!({"reason": reason, "message": "m", "field": field});
        let causes = json!([
            cause("FieldValueNotSupported", "spec.dnsPolicy"),
            cause("FieldValueTypeInvalid", "metadata.name"),
        ]);
        let decoding = |reason: &str| {
            let message = format!("Pod in version \"v1\" cannot be handled as a Pod: {reason}");
            failure(400, "BadRequest", &message, &json!([]))
        };
        let strict =
            "strict decoding error: unknown field \"spec.foo\", unknown field \"spec.a.b\"";
        for (response, expected) in [
            (
                failure(422, "Invalid", "invalid", &causes),
                vec!["T.spec.dnsPolicy: m", "T: m"],
            ),
            (
                decoding(strict),
                vec![
                    "T.spec.foo: Invalid value: unknown field",
                    "T.spec.a.b: Invalid value: unknown field",
                ],
            ),
            (
                decoding("v1.Pod.Spec: no"),
                vec!["T: Invalid value: v1.Pod.Spec: no"],
            ),
        ] {
            let PodCheck::Invalid(faults) = interpret_response(&response, &fields()) else {
                panic!("{response:?}");
            };
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            assert_eq!(faults, expected);
        }
    }

    #[test]
    fn checks_are_merged_without_repetitions() {
        let fault = |field| Fault::required(field, "x");
        let checks = vec![
            ("A".to_owned(), PodCheck::Accepted(None)),
            (
                "B".to_owned(),
                PodCheck::Invalid(vec![fault("f"), fault("f"), fault("g")]),
            ),
            ("C".to_owned(), PodCheck::Invalid(vec![fault("f")])),
            (
                "D".to_owned(),
                PodCheck::Denied("no\n\t room\u{1b}".to_owned()),
            ),
            ("E".to_owned(), PodCheck::Unknown("x".repeat(300))),
        ];
        let warned = build_report(checks.clone(), PolicyDenials::Warn);
        assert_eq!(warned.faults, [fault("f"), fault("g")]);
        assert!(warned.denials.is_empty());
        assert_eq!(warned.warnings[0], "D: pod would be denied now: no room");
        let long = format!("E: pod not validated: {}...", "x".repeat(234));
        assert_eq!(warned.warnings[1], long);
        let refused = build_report(checks, PolicyDenials::Refuse);
        assert_eq!(refused.denials, ["D: no room"]);
        assert_eq!(refused.warnings, [long]);
    }
}
