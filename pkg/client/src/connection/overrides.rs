//! Connection flags, which override the kubeconfig.

use std::path::Path;

use crate::{Error, Result};

use super::{options::ConnectOptions, selection::Selection};

/// Applies the flags to the selected cluster and user.
pub(crate) fn apply_flags(options: &ConnectOptions, selected: &mut Selection) -> Result<()> {
    let (cluster, user) = (&mut selected.cluster, &mut selected.user);
    let replace = |setting: &mut Option<String>, flag: Option<&String>| {
        if let Some(value) = flag {
            *setting = Some(value.clone());
        }
    };
    replace(&mut cluster.server, options.server.as_ref());
    replace(
        &mut cluster.tls_server_name,
        options.tls_server_name.as_ref(),
    );
    replace(&mut user.impersonate, options.impersonate.as_ref());
    if options.insecure_skip_tls_verify {
        cluster.insecure_skip_tls_verify = Some(true);
        (
            cluster.certificate_authority,
            cluster.certificate_authority_data,
        ) = (None, None);
    }
    let text = |file: &Path| Some(file.to_string_lossy().into_owned());
    if let Some(file) = &options.certificate_authority {
        if !options.insecure_skip_tls_verify {
            cluster.insecure_skip_tls_verify = None;
        }
        (
            cluster.certificate_authority,
            cluster.certificate_authority_data,
        ) = (text(file), None);
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
    let more = user.impersonate_groups.is_some()
        || user.impersonate_uid.is_some()
        || user.impersonate_user_extra.is_some();
    if more && user.impersonate.is_none() {
        let message =
            "requesting uid, groups or extra without impersonating a user; pass --as, too";
        return Err(Error::Configuration(message.to_owned()));
    }
    Ok(())
}
