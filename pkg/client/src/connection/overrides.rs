//! Connection flags, which override the kubeconfig.

use std::path::Path;

use crate::{Error, Result};

use super::{options::ConnectOptions, selection::Selection};

/// Applies the flags to the selected cluster and user.
pub(crate) fn apply_flags(options: &ConnectOptions, selected: &mut Selection) -> Result<()> {
    let (cluster, user) = (&mut selected.cluster, &mut selected.user);
    if options.server.is_some() {
        cluster.server.clone_from(&options.server);
    }
    if options.server.is_some() || options.tls_server_name.is_some() {
        // The name of the kubeconfig belongs to its address.
        cluster.tls_server_name.clone_from(&options.tls_server_name);
    }
    if options.impersonate.is_some() {
        user.impersonate.clone_from(&options.impersonate);
    }
    let text = |file: &Path| Some(file.to_string_lossy().into_owned());
    if options.insecure_skip_tls_verify || options.certificate_authority.is_some() {
        cluster.insecure_skip_tls_verify = Some(options.insecure_skip_tls_verify);
        cluster.certificate_authority = options.certificate_authority.as_deref().and_then(text);
        cluster.certificate_authority_data = None;
    }
    if let Some(file) = &options.client_certificate {
        (user.client_certificate, user.client_certificate_data) = (text(file), None);
    }
    if let Some(file) = &options.client_key {
        (user.client_key, user.client_key_data) = (text(file), None);
    }
    if let Some(token) = &options.token {
        // The token of the flag replaces all credentials of the kubeconfig.
        (user.username, user.password) = (None, None);
        (user.token_file, user.exec, user.auth_provider) = (None, None, None);
        user.token = Some(token.clone());
    }
    if !options.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(options.impersonate_groups.clone());
    }
    let has_more = user.impersonate_groups.iter().flatten().next().is_some()
        || user.impersonate_uid.is_some()
        || user
            .impersonate_user_extra
            .iter()
            .flatten()
            .next()
            .is_some();
    if has_more && user.impersonate.is_none() {
        let message =
            "requesting uid, groups or extra without impersonating a user; pass --as, too";
        return Err(Error::Configuration(message.to_owned()));
    }
    Ok(())
}
