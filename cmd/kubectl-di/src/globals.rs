use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::bail;
use clap::{ArgAction, Args};
use di_client::{Cluster, ConnectOptions, Result, Secret};

use crate::args::limit;

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
    #[arg(long, global = true, value_name = "FILE")]
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
    /// How long to wait for one answer of the server, as 30s; 0 means without limit
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        default_value = "0", value_parser = limit)]
    request_timeout: Duration,
    /// Address and port of the API server, instead of the kubeconfig's
    #[arg(short, long, global = true)]
    server: Option<String>,
    /// File of the authority that the server's certificate is to come from
    #[arg(long, global = true, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Take any certificate of the server: whoever sits between can read everything
    #[arg(
        long,
        global = true,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    insecure_skip_tls_verify: bool,
    /// Name that the server's certificate is to have, instead of the address's
    #[arg(long, global = true, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// File of a certificate to show to the server
    #[arg(long, global = true, value_name = "FILE")]
    client_certificate: Option<PathBuf>,
    /// File of that certificate's key
    #[arg(long, global = true, value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// Bearer token to show to the server
    #[arg(long, global = true)]
    token: Option<Secret>,
    /// Name for basic authentication to the server
    #[arg(long, global = true, value_name = "NAME")]
    username: Option<String>,
    /// Password for basic authentication to the server
    #[arg(long, global = true)]
    password: Option<Secret>,
    /// Have answers come uncompressed
    #[arg(
        long,
        global = true,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    disable_compression: bool,
    /// Exit with an error when the server warns of something
    #[arg(
        long,
        global = true,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
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
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Taken as kubectl's; see version for what fits together
    #[arg(
        long,
        global = true,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    match_server_version: bool,
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
