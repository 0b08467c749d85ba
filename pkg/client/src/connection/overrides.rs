//! Connection flags, which override the kubeconfig.

use std::{fs, path::Path};

use kube::Config;

use crate::{Error, Result};

use super::options::ConnectOptions;

/// Applies the flags to the configuration.
pub(crate) fn apply_flags(options: &ConnectOptions, config: &mut Config) -> Result<()> {
    apply_tls_flags(options, config)?;
    apply_user_flags(options, config)?;
    apply_impersonation_flags(options, config)?;
    if let Some(server) = &options.server {
        let address = with_scheme(server, has_tls(options, config));
        config.cluster_url = address.parse().map_err(|error| {
            Error::Configuration(format!("invalid address --server={server}: {error}"))
        })?;
    }
    Ok(())
}

fn apply_tls_flags(options: &ConnectOptions, config: &mut Config) -> Result<()> {
    if let Some(file) = &options.certificate_authority {
        check_readable("certificate-authority", file)?;
        config.root_cert = None;
        config.root_cert_file = Some(file.clone());
        config.accept_invalid_certs = false;
    }
    if options.insecure_skip_tls_verify {
        if options.certificate_authority.is_some() {
            let message = "specifying a root certificates file with the insecure flag is not allowed; pass either --certificate-authority or --insecure-skip-tls-verify";
            return Err(Error::Configuration(message.to_owned()));
        }
        config.accept_invalid_certs = true;
        config.root_cert = None;
        config.root_cert_file = None;
    }
    if let Some(name) = &options.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    Ok(())
}

fn apply_user_flags(options: &ConnectOptions, config: &mut Config) -> Result<()> {
    let user = &mut config.auth_info;
    if let Some(file) = &options.client_certificate {
        check_readable("client-certificate", file)?;
        user.client_certificate = Some(file.to_string_lossy().into_owned());
        user.client_certificate_data = None;
    }
    if let Some(file) = &options.client_key {
        check_readable("client-key", file)?;
        user.client_key = Some(file.to_string_lossy().into_owned());
        user.client_key_data = None;
    }
    if let Some(token) = &options.token {
        // The token of the flag replaces all credentials of the kubeconfig.
        (user.username, user.password) = (None, None);
        (user.token_file, user.exec, user.auth_provider) = (None, None, None);
        user.token = Some(token.clone());
    }
    Ok(())
}

fn apply_impersonation_flags(options: &ConnectOptions, config: &mut Config) -> Result<()> {
    let user = &mut config.auth_info;
    if let Some(name) = &options.impersonate {
        user.impersonate = Some(name.clone());
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

fn check_readable(flag: &str, file: &Path) -> Result<()> {
    fs::File::open(file).map(drop).map_err(|error| {
        Error::Configuration(format!(
            "unable to read --{flag}={}: {error}",
            file.display()
        ))
    })
}

fn has_tls(options: &ConnectOptions, config: &Config) -> bool {
    config.root_cert.is_some()
        || config.root_cert_file.is_some()
        || config.accept_invalid_certs
        || options.client_certificate.is_some()
}

/// Adds the scheme that kubectl assumes for an address without scheme.
fn with_scheme(server: &str, tls: bool) -> String {
    if server.contains("://") {
        server.to_owned()
    } else if tls {
        format!("https://{server}")
    } else {
        format!("http://{server}")
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use secrecy::ExposeSecret;

    use super::*;

    fn config_fixture() -> Config {
        let mut config = Config::new(Uri::from_static("https://old:6443"));
        config.root_cert = Some(vec![vec![1]]);
        config.auth_info.username = Some("old".to_owned());
        config.auth_info.password = Some("old".to_owned().into());
        config.auth_info.client_certificate_data = Some("old".to_owned());
        config
    }

    #[test]
    fn server_without_scheme_gets_kubectl_default() {
        for (server, tls, address) in [
            ("h:1", false, "http://h:1"),
            ("h:1", true, "https://h:1"),
            ("http://h:1", true, "http://h:1"),
        ] {
            assert_eq!(with_scheme(server, tls), address);
        }
    }

    #[test]
    fn flags_override_kubeconfig() {
        let mut config = config_fixture();
        let options = ConnectOptions {
            server: Some("h:1".to_owned()),
            insecure_skip_tls_verify: true,
            tls_server_name: Some("n".to_owned()),
            token: Some("new".into()),
            impersonate: Some("a".to_owned()),
            ..ConnectOptions::default()
        };
        apply_flags(&options, &mut config).unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://h:1/");
        assert!(config.accept_invalid_certs && config.root_cert.is_none());
        assert_eq!(config.tls_server_name.as_deref(), Some("n"));
        let user = config.auth_info;
        assert!(user.username.is_none() && user.password.is_none());
        assert_eq!(user.token.unwrap().expose_secret(), "new");
        assert_eq!(user.impersonate.as_deref(), Some("a"));
    }

    #[test]
    fn conflicting_flags_are_named() {
        let ca = tempfile::NamedTempFile::new().unwrap();
        let error_of = |options: ConnectOptions| {
            apply_flags(&options, &mut config_fixture())
                .unwrap_err()
                .to_string()
        };
        let both = error_of(ConnectOptions {
            certificate_authority: Some(ca.path().to_owned()),
            insecure_skip_tls_verify: true,
            ..ConnectOptions::default()
        });
        assert!(both.contains("--insecure-skip-tls-verify"), "{both}");
        let without_user = error_of(ConnectOptions {
            impersonate_groups: vec!["g".to_owned()],
            ..ConnectOptions::default()
        });
        assert!(without_user.ends_with("pass --as, too"), "{without_user}");
        let missing = error_of(ConnectOptions {
            client_key: Some("missing.key".into()),
            ..ConnectOptions::default()
        });
        assert!(
            missing.starts_with("unable to read --client-key=missing.key: "),
            "{missing}"
        );
    }
}
