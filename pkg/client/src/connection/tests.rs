//! Connections of tests.

use crate::{Cluster, ConnectOptions, Result};

pub(crate) fn kubeconfig_file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// A kubeconfig file with the given context.
pub(crate) fn with_context(context: &str) -> tempfile::NamedTempFile {
    kubeconfig_file(&format!(
        "{{current-context: c, contexts: [{{name: c, context: {context}}}],
          clusters: [{{name: k, cluster: {{server: 'https://h:1'}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
    ))
}

pub(crate) async fn connect(options: ConnectOptions) -> Result<Cluster> {
    Cluster::connect(&options, |_| {}).await
}

/// Connects with a credential plugin that runs this script non-interactively.
#[cfg(unix)]
pub(crate) async fn connect_by_plugin(script: &str) -> Result<Cluster> {
    let user = serde_json::json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "sh",
        "args": ["-c", script, "secret"], "env": [{"name": "PASSWORD", "value": "secret"}],
    }});
    let file =  kubeconfig_file(&format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}],
          clusters: [{{name: k, cluster: {{server: 'https://h:1'}}}}], users: [{{name: u, user: {user}}}]}}"
    ));
    let options = ConnectOptions {
        kubeconfig: Some(file.path().to_owned()),
        ..ConnectOptions::default()
    };
    connect(options).await
}
