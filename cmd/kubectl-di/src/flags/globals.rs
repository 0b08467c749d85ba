use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use di_client::{Cluster, ConnectOptions, Result, SecretString};

use crate::flags::parsers::parse_timeout;

/// The connection flags of kubectl. `--help` lists them; `-h` does not.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global flags")]
pub struct Globals {
    /// If present, the namespace scope for this CLI request
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// The name of the kubeconfig context to use
    #[arg(long, global = true)]
    context: Option<String>,
    /// Path to the kubeconfig file to use for CLI requests
    #[arg(long, global = true, value_name = "FILE", value_parser = path_parser())]
    kubeconfig: Option<PathBuf>,
    /// The name of the kubeconfig cluster to use
    #[arg(long, global = true)]
    cluster: Option<String>,
    /// The name of the kubeconfig user to use
    #[arg(long, global = true)]
    user: Option<String>,
    /// Username to impersonate for the operation
    #[arg(long = "as", global = true, value_name = "USER")]
    impersonate: Option<String>,
    /// Group to impersonate for the operation, this flag can be repeated to specify multiple groups
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    impersonate_groups: Vec<String>,
    /// The length of time to wait before giving up on a single server request, such as 30s. A
    /// value of zero means don't timeout requests
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        default_value = "0", value_parser = parse_request_timeout)]
    request_timeout: Duration,
    /// The address and port of the Kubernetes API server
    #[arg(short, long, global = true)]
    server: Option<String>,
    /// Path to a cert file for the certificate authority
    #[arg(long, global = true, value_name = "FILE", value_parser = path_parser())]
    certificate_authority: Option<PathBuf>,
    /// If true, the server's certificate will not be checked for validity. This will make your
    /// HTTPS connections insecure
    #[arg(long, global = true)]
    insecure_skip_tls_verify: bool,
    /// Server name to use for server certificate validation. If it is not provided, the hostname
    /// used to contact the server is used
    #[arg(long, global = true, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Path to a client certificate file for TLS
    #[arg(long, global = true, value_name = "FILE", value_parser = path_parser())]
    client_certificate: Option<PathBuf>,
    /// Path to a client key file for TLS
    #[arg(long, global = true, value_name = "FILE", value_parser = path_parser())]
    client_key: Option<PathBuf>,
    /// Bearer token for authentication to the API server
    #[arg(long, global = true)]
    token: Option<SecretString>,
}

impl Globals {
    pub fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            namespace: self.namespace.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
            request_timeout: Some(self.request_timeout).filter(|limit| *limit != Duration::MAX),
            server: self.server.clone(),
            certificate_authority: self.certificate_authority.clone(),
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            tls_server_name: self.tls_server_name.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
            token: self.token.clone(),
            stdin_in_use: false,
        }
        .without_empty()
    }

    /// Connects to the cluster; prints each warning of the server once to stderr.
    pub async fn connect(&self) -> Result<Cluster> {
        self.connect_with_stdin(false).await
    }

    /// The same as [`Self::connect`]. If the command reads standard input, no credential plugin
    /// may.
    pub async fn connect_with_stdin(&self, in_use: bool) -> Result<Cluster> {
        let mut options = self.connect_options();
        options.stdin_in_use = in_use;
        let printed = Arc::new(Mutex::new(HashSet::new()));
        let warn = move |text: &str| {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            if printed.insert(text.to_owned()) {
                eprintln!("Warning: {text}");
            }
        };
        Cluster::connect(&options, warn).await
    }
}

/// Parses a path that may be empty.
fn path_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn parse_request_timeout(text: &str) -> std::result::Result<Duration, String> {
    parse_timeout(if text.is_empty() { "0" } else { text })
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn empty_flag_value_counts_as_not_set() {
        let flags = [
            "-n",
            "--context",
            "--kubeconfig",
            "--cluster",
            "--user",
            "--as",
            "--as-group",
            "--server",
            "--certificate-authority",
            "--tls-server-name",
            "--client-certificate",
            "--client-key",
            "--token",
            "--request-timeout",
        ];
        let words = flags.into_iter().flat_map(|flag| [flag, ""]);
        let command = Globals::augment_args(clap::Command::new("globals"));
        let parse = |words: Vec<&str>| {
            let matches = command.clone().try_get_matches_from(words).unwrap();
            let globals = Globals::from_arg_matches(&matches).unwrap();
            format!("{:?}", globals.connect_options())
        };
        let empty = parse(["globals"].into_iter().chain(words).collect());
        assert_eq!(empty, parse(vec!["globals"]));
    }
}
