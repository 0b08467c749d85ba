//! Kubeconfigs, flags and environments: the same requests with the same credentials.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt};

use serde::Deserialize;

use crate::programs::{Comparison, Sandbox, check_all};

/// A case of the corpus.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Case {
    /// Entries of the kubeconfig, as YAML.
    current: Option<String>,
    context: Option<String>,
    cluster: Option<String>,
    user: Option<String>,
    /// The whole kubeconfig instead.
    kubeconfig: Option<String>,
    files: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    args: String,
    /// The plugin fails, and so does kubectl unless there is a difference.
    fails: bool,
    difference: Option<String>,
}

impl Case {
    /// The kubeconfig with one context, cluster and user.
    fn kubeconfig(&self) -> String {
        let or =
            |entry: &Option<String>, default: &str| entry.clone().unwrap_or(default.to_owned());
        let whole = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {}\n\
             contexts:\n- name: c\n  context: {}\n\
             clusters:\n- name: k\n  cluster: {}\n\
             users:\n- name: u\n  user: {}\n",
            or(&self.current, "c"),
            or(&self.context, "{cluster: k, user: u, namespace: ns}"),
            or(
                &self.cluster,
                "{server: $HTTPS, certificate-authority: ca.crt}"
            ),
            or(&self.user, "{token: t}"),
        );
        or(&self.kubeconfig, &whole)
    }

    fn compare(&self) -> Comparison {
        let sandbox = Sandbox::new();
        let mut files = self.files.clone();
        files.insert("config".to_owned(), self.kubeconfig());
        for (name, text) in files {
            let path = sandbox.path().join(&name);
            fs::write(&path, sandbox.expand(&text)).unwrap();
            if name == "login" {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let mut environment = self.environment.clone();
        let config = || "$DIR/config".to_owned();
        environment
            .entry("KUBECONFIG".to_owned())
            .or_insert_with(config);
        for value in environment.values_mut() {
            *value = sandbox.expand(value);
        }
        let args = self.args.split_whitespace();
        let args: Vec<_> = args.map(|word| sandbox.expand(word)).collect();
        let call = |words: &[&str]| -> Vec<String> {
            let words = words.iter().map(ToString::to_string);
            words
                .chain(["-o", "name"].map(str::to_owned))
                .chain(args.clone())
                .collect()
        };
        let kubectl = call(&["get", "dijobs.v1alpha2.diengine.opendilab.org", "x"]);
        let kubectl = sandbox.kubectl(&kubectl, &environment);
        let expected = sandbox.take_outcome(&kubectl);
        let plugin = sandbox.plugin(&call(&["get", "x"]), &environment);
        let found = sandbox.take_outcome(&plugin);
        Comparison {
            agrees: found == expected,
            is_expected: found.succeeded != self.fails,
            outcomes: format!(
                "kubectl: {expected:?} {}\n  plugin: {found:?} {}",
                kubectl.stderr.trim(),
                plugin.stderr.trim()
            ),
        }
    }
}

#[test]
fn connections_match_kubectl() {
    let corpus: BTreeMap<String, Case> =
        serde_saphyr::from_str(include_str!("connections.yaml")).unwrap();
    let cases: Vec<_> = corpus.into_iter().collect();
    check_all(
        &cases,
        |(name, _)| name,
        |(_, case)| case.difference.as_deref(),
        |(_, case)| case.compare(),
    );
}
