//! Kubeconfigs, flags and environments: the same requests with the same credentials.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::programs::{Sandbox, check_all};

/// A case of the corpus. Entries of the kubeconfig are YAML texts.
struct Case {
    name: String,
    fields: Value,
}

impl Case {
    fn text<'a>(&'a self, field: &str, default: &'a str) -> &'a str {
        self.fields[field].as_str().unwrap_or(default)
    }

    fn strings(&self, field: &str) -> BTreeMap<String, String> {
        let entries = self.fields[field].as_object().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        entries
            .map(|(key, value)| (key.clone(), text(value)))
            .collect()
    }

    /// The kubeconfig with one context, cluster and user.
    fn kubeconfig(&self) -> String {
        let cluster = "{server: $HTTPS, certificate-authority: ca.crt}";
        let entry = |field, default| self.text(field, default);
        let whole = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {}\n\
             contexts:\n- name: c\n  context: {}\n\
             clusters:\n- name: k\n  cluster: {}\n\
             users:\n- name: u\n  user: {}\n",
            entry("current", "c"),
            entry("context", "{cluster: k, user: u, namespace: ns}"),
            entry("cluster", cluster),
            entry("user", "{token: t}"),
        );
        self.text("kubeconfig", &whole).to_owned()
    }

    fn compare(&self) -> Result<(), String> {
        let sandbox = Sandbox::new();
        let mut files = self.strings("files");
        files.insert("config".to_owned(), self.kubeconfig());
        for (name, text) in files {
            let path = sandbox.path().join(&name);
            fs::write(&path, sandbox.expand(&text)).unwrap();
            if name == "login" {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        let mut environment = self.strings("environment");
        let config = || "$DIR/config".to_owned();
        environment
            .entry("KUBECONFIG".to_owned())
            .or_insert_with(config);
        for value in environment.values_mut() {
            *value = sandbox.expand(value);
        }
        let args = self.text("args", "").split_whitespace();
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
        let fails = self.fields["fails"].as_bool().unwrap_or_default();
        if found == expected && expected.succeeded != fails {
            return Ok(());
        }
        Err(format!(
            "kubectl: {expected:?} {}\n  plugin: {found:?} {}",
            kubectl.stderr.trim(),
            plugin.stderr.trim()
        ))
    }
}

#[test]
fn connections_match_kubectl() {
    let corpus: BTreeMap<String, Value> =
        serde_saphyr::from_str(include_str!("connections.yaml")).unwrap();
    let cases = corpus
        .into_iter()
        .map(|(name, fields)| Case { name, fields });
    let cases: Vec<_> = cases.collect();
    check_all(
        &cases,
        |case| &case.name,
        |case| case.fields["difference"].as_str(),
        Case::compare,
    );
}
