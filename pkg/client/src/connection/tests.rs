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
