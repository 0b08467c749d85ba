use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, ValueEnum};
use di_client::{Orchestrator, VERSION, Versions, skew, versions};
use serde_json::{Value, json};

use crate::{globals::Globals, output};

/// Show the versions of this plugin, the cluster and the orchestrator in it.
///
/// Warns where they are too far apart.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Everything
  kubectl di version

  # Without asking a cluster
  kubectl di version --client

  # For scripts
  kubectl di version -o json")]
pub struct Version {
    /// Only this plugin's
    #[arg(long)]
    client: bool,
    /// Another form than text
    #[arg(short, long)]
    output: Option<DataFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    Json,
    Yaml,
}

impl Version {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        // What is known without the cluster is worth showing even when it cannot be asked.
        let mut asked = None;
        if !self.client {
            asked = Some(match globals.connect().await {
                Ok(cluster) => versions(&cluster).await,
                Err(error) => Err(error),
            });
        }
        let (found, failure) = match asked.transpose() {
            Ok(found) => (found, None),
            Err(error) => (None, Some(error)),
        };
        match self.output {
            Some(DataFormat::Json) => output::json(out, &data(found.as_ref()))?,
            Some(DataFormat::Yaml) => output::yaml(out, &data(found.as_ref()))?,
            None => out.write_all(text(found.as_ref()).as_bytes())?,
        }
        for said in found.iter().flat_map(|found| skew(VERSION, found)) {
            eprintln!("WARNING: {said}");
        }
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

fn client() -> String {
    format!("v{VERSION}")
}

fn data(found: Option<&Versions>) -> Value {
    // The names of kubectl's, too, for scripts that know them.
    let mut data = json!({"client": client(), "clientVersion": {"gitVersion": client()}});
    if let Some(found) = found {
        data["kubernetes"] = found.kubernetes.as_str().into();
        data["serverVersion"] = json!({"gitVersion": found.kubernetes});
        data["api"] = found.api.clone().into();
        data["orchestrator"] = match &found.orchestrator {
            Orchestrator::Installed(installed) => json!({
                "installed": true,
                "version": installed.version.as_ref().map(|version| format!("v{version}")),
                "images": installed.images,
            }),
            Orchestrator::NotInstalled => json!({"installed": false}),
            Orchestrator::Hidden => Value::Null,
        };
    }
    data
}

fn text(found: Option<&Versions>) -> String {
    let client = client();
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
        Orchestrator::Hidden => "unknown (you may not read Deployments in di-system)".to_owned(),
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
    fn what_is_not_there_is_said() {
        let found = Versions {
            kubernetes: "v1.20.2".to_owned(),
            api: vec!["v1alpha2".to_owned(), "v1alpha1".to_owned()],
            orchestrator: Orchestrator::NotInstalled,
        };
        let told = text(Some(&found)).replace(&client(), "vX");
        insta::assert_snapshot!(told, @r"
        Client: vX
        Kubernetes: v1.20.2
        DIJob API: v1alpha2, v1alpha1
        Orchestrator: not installed
        ");
        assert_eq!(
            data(Some(&found))["orchestrator"],
            json!({"installed": false})
        );
        assert_eq!(text(None), format!("Client: {}\n", client()));
    }
}
