use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Orchestrator, VERSION, Versions, get_versions, skew_messages};
use serde_json::{Value, json};

use crate::{
    flags::globals::Globals,
    output::{self, format::DataFormat},
};

/// Print the versions of this plugin, the cluster and the orchestrator.
///
/// Warns if the version skew is not supported.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Print all versions
  kubectl di version

  # Print the client version only
  kubectl di version --client

  # For scripts
  kubectl di version -o json")]
pub struct Version {
    /// If true, shows client version only (no server required)
    #[arg(long)]
    client: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<DataFormat>,
}

impl Version {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        // Print the client version even if the cluster cannot be reached.
        let mut requested = None;
        if !self.client {
            requested = Some(match globals.connect().await {
                Ok(cluster) => get_versions(&cluster).await,
                Err(error) => Err(error),
            });
        }
        let (found, failure) = match requested.transpose() {
            Ok(found) => (found, None),
            Err(error) => (None, Some(error)),
        };
        match self.output {
            Some(DataFormat::Json) => output::print_json(out, &to_json(found.as_ref()))?,
            Some(DataFormat::Yaml) => output::print_yaml(out, &to_json(found.as_ref()))?,
            None => out.write_all(to_text(found.as_ref()).as_bytes())?,
        }
        for warning in found.iter().flat_map(|found| skew_messages(VERSION, found)) {
            eprintln!("WARNING: {warning}");
        }
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

fn client_version() -> String {
    format!("v{VERSION}")
}

fn to_json(found: Option<&Versions>) -> Value {
    let mut data = json!({"client": client_version()});
    if let Some(found) = found {
        data["kubernetes"] = found.kubernetes.as_str().into();
        data["api"] = found.api.clone().into();
        data["orchestrator"] = match &found.orchestrator {
            Orchestrator::Installed(installed) => json!({
                "installed": true,
                "version": installed.version.as_ref().map(|version| format!("v{version}")),
                "images": installed.images,
            }),
            Orchestrator::NotInstalled => json!({"installed": false}),
            Orchestrator::Forbidden => Value::Null,
        };
    }
    data
}

fn to_text(found: Option<&Versions>) -> String {
    let client = client_version();
    let Some(found) = found else {
        return format!("Client: {client}\n");
    };
    let api = match found.api.as_slice() {
        [] => "not installed".to_owned(),
        served => served.join(", "),
    };
    let orchestrator = match &found.orchestrator {
        Orchestrator::Installed(installed) => {
            let images = installed.images.join(", ");
            match &installed.version {
                Some(version) => format!("v{version} ({images})"),
                None => images,
            }
        }
        Orchestrator::NotInstalled => "not installed".to_owned(),
        Orchestrator::Forbidden => "unknown (you may not read Deployments in di-system)".to_owned(),
    };
    format!(
        "Client: {client}\nKubernetes: {}\nDIJob API: {api}\nOrchestrator: {orchestrator}\n",
        found.kubernetes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_orchestrator_is_printed() {
        let found = Versions {
            kubernetes: "v1.20.2".to_owned(),
            api: vec!["v1alpha2".to_owned(), "v1alpha1".to_owned()],
            orchestrator: Orchestrator::NotInstalled,
        };
        let text = to_text(Some(&found)).replace(&client_version(), "vX");
        insta::assert_snapshot!(text, @r"
        Client: vX
        Kubernetes: v1.20.2
        DIJob API: v1alpha2, v1alpha1
        Orchestrator: not installed
        ");
        assert_eq!(
            to_json(Some(&found))["orchestrator"],
            json!({"installed": false})
        );
        assert_eq!(to_text(None), format!("Client: {}\n", client_version()));
    }
}
