//! Security contexts of Windows nodes.

use k8s_openapi::api::core::v1::WindowsSecurityContextOptions;

use super::super::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::check_required,
};

/// Maximum lengths of user and domain names, in characters.
const MAX_USER: usize = 104;
const MAX_DOMAIN: usize = 256;
const NOT_IN_USERS: [char; 15] = [
    '"', '/', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']',
];
/// Maximum size of a credential spec, in bytes.
const MAX_CREDENTIALS: usize = 64 * 1024;

/// Checks the user and credentials of a Windows container.
pub(super) fn check_windows_options(
    options: Option<&WindowsSecurityContextOptions>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let Some(options) = options else { return };
    let field = field.child("windowsOptions");
    if let Some(name) = &options.gmsa_credential_spec_name {
        names::check_subdomain(name, &field.child("gmsaCredentialSpecName"), faults);
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let place = field.child("gmsaCredentialSpec");
        check_required(spec, &place, "the credentials; omit it for none", faults);
        if spec.len() > MAX_CREDENTIALS {
            faults.push(Fault::too_long(place, MAX_CREDENTIALS));
        }
    }
    if let Some(user) = &options.run_as_user_name {
        let place = field.child("runAsUserName");
        check_required(
            user,
            &place,
            "the user; omit it for that of the image",
            faults,
        );
        if let Some(why) = invalid_username(user) {
            faults.push(Fault::invalid(place, user.as_str(), why));
        }
    }
}

/// Returns why a user name is invalid: it must be `user` or `DOMAIN\user`.
fn invalid_username(name: &str) -> Option<&'static str> {
    let (domain, user) = match name.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let is_empty = name.is_empty() || domain == Some("") || user.is_empty();
    let rules = [
        // An empty name is reported as missing.
        (name.is_empty(), None),
        (is_empty, Some("must be DOMAIN\\user, or a user alone")),
        (
            name.chars().any(char::is_control),
            Some("must not contain control characters"),
        ),
        (
            user.contains('\\'),
            Some("must not contain more than one backslash"),
        ),
        (
            domain.is_some_and(|domain| domain.len() >= MAX_DOMAIN),
            Some("must have a domain of less than 256 characters"),
        ),
        (
            user.len() > MAX_USER,
            Some("must have a user of no more than 104 characters"),
        ),
        (
            user.contains(NOT_IN_USERS),
            Some("must have a user without any of \"/:;|=,+*?<>@[]"),
        ),
        (
            user.chars().all(|c| c == '.' || c == ' '),
            Some("must have a user of more than periods and spaces"),
        ),
    ];
    rules.into_iter().find(|(is_broken, _)| *is_broken)?.1
}
