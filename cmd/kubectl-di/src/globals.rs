use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::bail;
use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use di_client::{Cluster, ConnectOptions, Result, SecretString};

use crate::args::{duration, limit};

/// From this level on, kubectl tells of requests.
const REQUESTS: u8 = 6;

/// Flags of every command, as kubectl has them. Like there, `options` lists them, and the help of a command does not.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools)] // each is a flag
#[command(next_help_heading = "Global flags")]
pub struct Globals {
    /// Namespace instead of the kubeconfig's
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true)]
    context: Option<String>,
    /// Kubeconfig file to use
    #[arg(long, global = true, value_name = "FILE", value_parser = path())]
    kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig to use
    #[arg(long, global = true)]
    cluster: Option<String>,
    /// User of the kubeconfig to use
    #[arg(long, global = true)]
    user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    impersonate: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    impersonate_groups: Vec<String>,
    /// UID to impersonate
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    impersonate_uid: Option<String>,
    /// What else is known of the user to impersonate, as key=value; may be repeated
    #[arg(long = "as-user-extra", global = true, value_name = "KEY=VALUE", value_parser = pair)]
    impersonate_extra: Vec<(String, String)>,
    /// How long to wait for one answer of the server, as 30s; 0 means without limit
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        default_value = "0", value_parser = request_timeout)]
    request_timeout: Duration,
    /// Address and port of the API server, instead of the kubeconfig's
    #[arg(short, long, global = true)]
    server: Option<String>,
    /// File of the authority that the server's certificate is to come from
    #[arg(long, global = true, value_name = "FILE", value_parser = path())]
    certificate_authority: Option<PathBuf>,
    /// Take any certificate of the server: whoever sits between can read everything
    #[arg(long, global = true)]
    insecure_skip_tls_verify: bool,
    /// Name that the server's certificate is to have, instead of the address's
    #[arg(long, global = true, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// File of a certificate to show to the server
    #[arg(long, global = true, value_name = "FILE", value_parser = path())]
    client_certificate: Option<PathBuf>,
    /// File of that certificate's key
    #[arg(long, global = true, value_name = "FILE", value_parser = path())]
    client_key: Option<PathBuf>,
    /// Bearer token to show to the server
    #[arg(long, global = true)]
    token: Option<SecretString>,
    /// Name for basic authentication to the server
    #[arg(long, global = true, value_name = "NAME")]
    username: Option<String>,
    /// Password for basic authentication to the server
    #[arg(long, global = true)]
    password: Option<SecretString>,
    /// Have answers come uncompressed
    #[arg(long, global = true)]
    disable_compression: bool,
    /// Exit with an error when the server warns of something
    #[arg(long, global = true)]
    warnings_as_errors: bool,
    /// How much to tell on stderr; from 6 on, every request
    #[arg(
        short,
        long = "v",
        global = true,
        value_name = "LEVEL",
        default_value_t = 0
    )]
    verbosity: u8,
    /// Taken as kubectl's; nothing is cached
    #[arg(long, global = true, value_name = "DIR", value_parser = path())]
    cache_dir: Option<PathBuf>,
    /// Taken as kubectl's; see version for what fits together
    #[arg(long, global = true)]
    match_server_version: bool,
    /// Taken as kubectl's; its file of defaults is for kubectl itself
    #[arg(long, global = true, value_name = "FILE", value_parser = path())]
    kuberc: Option<PathBuf>,
    /// Taken as kubectl's; what is told comes at once
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", value_parser = duration)]
    log_flush_frequency: Duration,
    /// Taken as kubectl's; -v is for all there is
    #[arg(long, global = true, value_name = "PATTERN=LEVEL")]
    vmodule: Option<String>,
    /// Taken as kubectl's; there is no profile
    #[arg(long, global = true, default_value = "none", value_name = "NAME")]
    profile: String,
    /// Taken as kubectl's; there is no profile
    #[arg(
        long,
        global = true,
        default_value = "profile.pprof",
        value_name = "NAME"
    )]
    profile_output: String,
    /// What the server warned of.
    #[arg(skip)]
    warnings: Arc<Mutex<HashSet<String>>>,
}

impl Globals {
    pub fn options(&self) -> ConnectOptions {
        ConnectOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            namespace: self.namespace.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
            impersonate_uid: self.impersonate_uid.clone(),
            impersonate_extra: self.impersonate_extra.clone(),
            request_timeout: Some(self.request_timeout).filter(|limit| *limit != Duration::MAX),
            server: self.server.clone(),
            certificate_authority: self.certificate_authority.clone(),
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            tls_server_name: self.tls_server_name.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
            token: self.token.clone(),
            username: self.username.clone(),
            password: self.password.clone(),
            disable_compression: self.disable_compression,
            trace: (self.verbosity >= REQUESTS).then_some(|text| eprintln!("{text}")),
        }
        .without_empty()
    }

    /// Connects; the server's warnings go to stderr, each once.
    pub async fn connect(&self) -> Result<Cluster> {
        let told = self.warnings.clone();
        let warn = move |text: &str| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.insert(text.to_owned()) {
                eprintln!("Warning: {text}");
            }
        };
        Cluster::connect(&self.options(), warn).await
    }

    /// Fails where the server has warned and that is to count.
    pub fn heed_warnings(&self) -> anyhow::Result<()> {
        let told = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        match told.len() {
            1 if self.warnings_as_errors => bail!("1 warning received"),
            many if self.warnings_as_errors && many > 0 => bail!("{many} warnings received"),
            _ => Ok(()),
        }
    }
}

/// A path that may be empty.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn request_timeout(text: &str) -> std::result::Result<Duration, String> {
    limit(if text.is_empty() { "0" } else { text })
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    /// As `kubectl options` of 1.35 lists them.
    const KUBECTLS: &str = "as as-group as-uid as-user-extra cache-dir certificate-authority client-certificate client-key cluster context \
        disable-compression insecure-skip-tls-verify kubeconfig kuberc log-flush-frequency match-server-version namespace password profile \
        profile-output request-timeout server tls-server-name token user username v vmodule warnings-as-errors";

    #[test]
    fn kubectls_global_flags_are_ours() {
        let command = Globals::augment_args(clap::Command::new("globals"));
        let mut ours: Vec<_> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        ours.sort_unstable();
        assert_eq!(ours, KUBECTLS.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn an_empty_value_is_none() {
        let flags = [
            "-n",
            "--context",
            "--kubeconfig",
            "--cluster",
            "--user",
            "--as",
            "--as-group",
            "--as-uid",
            "--server",
            "--certificate-authority",
            "--tls-server-name",
            "--client-certificate",
            "--client-key",
            "--token",
            "--username",
            "--password",
            "--request-timeout",
        ];
        let words = flags.into_iter().flat_map(|flag| [flag, ""]);
        let command = Globals::augment_args(clap::Command::new("globals"));
        let read = |words: Vec<&str>| {
            let matches = command.clone().try_get_matches_from(words).unwrap();
            let globals = Globals::from_arg_matches(&matches).unwrap();
            format!("{:?}", globals.options())
        };
        let empty = read(["globals"].into_iter().chain(words).collect());
        assert_eq!(empty, read(vec!["globals"]));
    }
}
