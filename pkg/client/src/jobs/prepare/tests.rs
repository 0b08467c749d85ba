use futures::executor::block_on;

use super::*;
use crate::jobs::manifest::parse;

const GOOD: &str = "
apiVersion: diengine.opendilab.org/v1alpha1
kind: DIJob
metadata: {name: cartpole, namespace: rl}
spec:
  coordinator: {template: {spec: {containers: [{name: di-container, image: i}]}}}
";

fn try_prepare(text: &str, namespace: &str, explicit: bool) -> Result<Vec<PreparedObject>> {
    let namespace = Namespace {
        name: namespace.to_owned(),
        explicit,
    };
    let documents = parse("job.yaml", text).unwrap().documents;
    block_on(prepare_objects(None, &namespace, documents))
}

fn rejection(text: &str) -> String {
    let result = try_prepare(text, "rl", true);
    result.expect_err(text).to_string()
}

#[test]
fn manifest_namespace_overrides_kubeconfig() {
    let ready = try_prepare(GOOD, "default", false).unwrap();
    assert_eq!(ready[0].namespace.as_deref(), Some("rl"));
    assert_eq!(ready[0].api.api_version, "diengine.opendilab.org/v1alpha1");
    let without = GOOD.replace(", namespace: rl", "");
    let ready = try_prepare(&without, "default", false).unwrap();
    assert_eq!(ready[0].namespace.as_deref(), Some("default"));
}

#[test]
fn namespace_flag_mismatch_is_rejected() {
    let error = try_prepare(GOOD, "other", true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "job.yaml: DIJob \"cartpole\" is invalid:\n\
         * the namespace from the provided object \"rl\" does not match the namespace \"other\". \
         You must pass '--namespace=rl' to perform this operation.\n\
         nothing was sent"
    );
}

#[test]
fn faults_of_all_documents_are_reported_together() {
    let bad = GOOD.replace("di-container", "main");
    let text = format!("{bad}  backoffLimit: -1\n---\n{GOOD}---\n{GOOD}---\nkind: DIJob\n");
    assert_eq!(
        rejection(&text),
        "job.yaml: DIJob \"cartpole\" is invalid:\n\
         * spec.coordinator.template.spec.containers: Required value: one container must be named di-container (the main container); found main\n\
         * spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0\n\
         job.yaml: DIJob \"cartpole\" is invalid:\n\
         * metadata.name: Duplicate value: the manifests contain this object twice\n\
         job.yaml: DIJob \"cartpole\" is invalid:\n\
         * metadata.name: Duplicate value: the manifests contain this object twice\n\
         job.yaml: DIJob is invalid:\n\
         * apiVersion and kind: Required value\n\
         * metadata.name: Required value\n\
         nothing was sent"
    );
}

#[test]
fn unknown_kinds_and_versions_are_named() {
    for (from, to, expected) in [
        (
            "v1alpha1",
            "v9",
            r#"no matches for kind "DIJob" in version "diengine.opendilab.org/v9""#,
        ),
        (
            "kind: DIJob",
            "kind: DiJob",
            r#"no matches for kind "DiJob" in version "diengine.opendilab.org/v1alpha1""#,
        ),
        (
            "diengine.opendilab.org/v1alpha1",
            "batch/v1",
            "kind: DIJob is unknown without a cluster",
        ),
    ] {
        let error = rejection(&GOOD.replace(from, to));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn generate_name_suffices_to_create() {
    let text = GOOD.replace("name: cartpole,", "generateName: cartpole-,");
    let ready = try_prepare(&text, "rl", false).unwrap();
    assert_eq!(ready[0].name(), "");
}
