//! Runs credential plugins, as kubectl does.
//!
//! kube runs a plugin for a certificate several times, and lets it read a standard input that is no
//! terminal. Arguments and output of a plugin may be secret, so no message contains them.

use std::{
    io::{self, IsTerminal},
    process::Stdio,
};

use k8s_openapi::jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{Error, Result, yaml};

const V1: &str = "client.authentication.k8s.io/v1";
const V1_BETA_1: &str = "client.authentication.k8s.io/v1beta1";

/// The credentials that a plugin has returned: a token, a certificate with its key, or both.
pub(crate) struct Credential {
    pub(crate) token: Option<SecretString>,
    pub(crate) certificate: Option<(String, SecretString)>,
    pub(crate) expires: Option<Timestamp>,
}

/// The credential plugin of a user.
pub(crate) struct CredentialPlugin {
    exec: ExecConfig,
    command: String,
    version: String,
    stdin_in_use: bool,
}

impl CredentialPlugin {
    /// `stdin_in_use`: the command reads standard input itself.
    pub(crate) fn new(exec: ExecConfig, stdin_in_use: bool) -> Result<Self> {
        let (command, version) = (exec.command.clone(), exec.api_version.clone());
        let missing = match (&command, version.as_deref()) {
            (None, _) => Some("command"),
            (_, None) => Some("apiVersion"),
            (_, Some(V1)) if exec.interactive_mode.is_none() => Some("interactiveMode"),
            _ => None,
        };
        if let Some(field) = missing {
            let message = format!("{field} must be specified to use exec authentication plugin");
            return Err(Error::Configuration(message));
        }
        let (command, version) = (command.unwrap_or_default(), version.unwrap_or_default());
        if ![V1, V1_BETA_1].contains(&&*version) {
            let message = format!("exec plugin: invalid apiVersion {version:?}; use {V1}");
            return Err(Error::Configuration(message));
        }
        Ok(Self {
            exec,
            command,
            version,
            stdin_in_use,
        })
    }

    /// Runs the plugin and waits until it ends.
    pub(crate) async fn run(&self) -> Result<Credential> {
        let interactive = self.is_interactive(io::stdin().is_terminal())?;
        let mut spec = json!({"interactive": interactive});
        if let Some(cluster) = &self.exec.cluster {
            spec["cluster"] =
                serde_json::to_value(cluster).map_err(|error| self.failure(&error.to_string()))?;
        }
        let info = json!({"apiVersion": self.version, "kind": "ExecCredential", "spec": spec});
        let variables = self.exec.env.iter().flatten().filter_map(|variable| {
            let value = variable.get("value").map_or("", String::as_str);
            Some((variable.get("name")?, value))
        });
        let output = Command::new(&self.command)
            .args(self.exec.args.iter().flatten())
            .envs(variables)
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(if interactive {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await;
        let output = output.map_err(|error| {
            let hint = self
                .exec
                .install_hint
                .iter()
                .map(|hint| format!("\n\n{hint}"));
            let (command, hint) = (&self.command, hint.collect::<String>());
            let message = format!("unable to run the credential plugin {command:?}: {error}{hint}");
            Error::Configuration(message)
        })?;
        if !output.status.success() {
            return Err(self.failure(&format!("failed with {}", output.status)));
        }
        self.parse(output.stdout)
    }

    /// Whether the plugin may read standard input.
    fn is_interactive(&self, stdin_is_terminal: bool) -> Result<bool> {
        let available = stdin_is_terminal && !self.stdin_in_use;
        match self.exec.interactive_mode {
            Some(ExecInteractiveMode::Never) => Ok(false),
            Some(ExecInteractiveMode::Always) if !available => Err(self
                .failure("needs a terminal, but standard input is none or this command reads it")),
            Some(ExecInteractiveMode::Always | ExecInteractiveMode::IfAvailable) | None => {
                Ok(available)
            }
        }
    }

    fn parse(&self, stdout: Vec<u8>) -> Result<Credential> {
        let documents = yaml::decode_text(stdout).and_then(|text| yaml::parse_yaml(&text));
        let printed = documents.ok().and_then(|all| all.values.into_iter().next());
        let printed = printed.unwrap_or_default();
        let status = &printed["status"];
        if printed["kind"] != "ExecCredential" || printed["apiVersion"] != *self.version {
            let expected = format!("printed no ExecCredential of {}", self.version);
            return Err(self.failure(&expected));
        }
        if status.is_null() {
            return Err(self.failure("printed no status"));
        }
        let text = |field: &str| match &status[field] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            _ => Err(self.failure(&format!("printed a status.{field} that is not a string"))),
        };
        let token = text("token")?.map(SecretString::from);
        let certificate = match (text("clientCertificateData")?, text("clientKeyData")?) {
            (Some(certificate), Some(key)) => Some((certificate.to_owned(), key.into())),
            (None, None) => None,
            _ => return Err(self.failure("printed only certificate or key, not both")),
        };
        if token.is_none() && certificate.is_none() {
            return Err(self.failure("printed no token or certificate and key"));
        }
        let expires = text("expirationTimestamp")?.map(str::parse).transpose();
        Ok(Credential {
            token,
            certificate,
            expires: expires
                .map_err(|_| self.failure("printed an invalid status.expirationTimestamp"))?,
        })
    }

    fn failure(&self, what: &str) -> Error {
        Error::Configuration(format!(
            "getting credentials: exec: executable {} {what}",
            self.command
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdin_is_given_only_if_mode_and_command_allow_it() {
        use ExecInteractiveMode::{Always, IfAvailable, Never};
        for (mode, terminal, stdin_in_use, expected) in [
            (None, true, false, Some(true)),
            (Some(IfAvailable), true, false, Some(true)),
            (Some(IfAvailable), false, false, Some(false)),
            (Some(IfAvailable), true, true, Some(false)),
            (Some(Never), true, false, Some(false)),
            (Some(Always), true, false, Some(true)),
            (Some(Always), false, false, None),
            (Some(Always), true, true, None),
        ] {
            let exec = ExecConfig {
                command: Some("login".to_owned()),
                api_version: Some(V1_BETA_1.to_owned()),
                interactive_mode: mode.clone(),
                ..ExecConfig::default()
            };
            let plugin = CredentialPlugin::new(exec, stdin_in_use).unwrap();
            let found = plugin.is_interactive(terminal).ok();
            assert_eq!(found, expected, "{mode:?} {terminal} {stdin_in_use}");
        }
    }
}
