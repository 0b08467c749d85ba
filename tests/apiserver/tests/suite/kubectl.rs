//! The manifests, applied with kubectl.

use std::{path::PathBuf, process::Command};

use di_apiserver_tests::{Server, eventually};
use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::DeleteParams,
    runtime::wait::{await_condition, conditions::is_crd_established},
};

pub(crate) struct Kubectl<'a> {
    pub(crate) program: PathBuf,
    pub(crate) server: &'a Server,
}

/// The kubectl on PATH.
fn installed_kubectl() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&folders).map(|dir| dir.join("kubectl"));
    all.find(|path| path.exists())
}

/// The kubectl of the test server's release.
fn server_kubectl() -> Option<PathBuf> {
    let assets = PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS")?);
    Some(assets.join("kubectl")).filter(|path| path.exists())
}

/// The kubectl on PATH, or else the test server's.
pub(crate) fn any_kubectl() -> PathBuf {
    let program = installed_kubectl().or_else(server_kubectl);
    program.expect("a kubectl on PATH or in KUBEBUILDER_ASSETS")
}

impl Kubectl<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests");
        let mut command = Command::new(&self.program);
        command
            .current_dir(manifests)
            .env("HOME", self.server.dir())
            .env_remove("KUBECONFIG")
            .args([
                "--server",
                &self.server.url(),
                "--token",
                self.server.token(),
                "--certificate-authority",
            ])
            .arg(self.server.dir().join("ca.crt"))
            .args(args);
        command
    }

    /// Runs kubectl, which must succeed without output on stderr, and returns its stdout.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaints.is_empty(),
            "kubectl {args:?}: {complaints}\n{said}"
        );
        said
    }
}

#[tokio::test]
async fn installed_kubectl_applies_manifests_without_warnings() {
    apply_manifests(any_kubectl()).await;
}

#[tokio::test]
async fn kubectl_of_server_release_applies_manifests() {
    // Some envtest packages have no kubectl.
    if let Some(program) = server_kubectl() {
        apply_manifests(program).await;
    }
}

/// Applies all manifests twice: the second time must change nothing.
async fn apply_manifests(program: PathBuf) {
    // These webhooks fail closed and are not served, so use a separate server.
    let server = Server::start().await;
    let client = server.client("test");
    let kubectl = Kubectl {
        program,
        server: &server,
    };
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());

    kubectl.run(&[
        "apply",
        "-f",
        "crds/dijobs.yaml",
        "-f",
        "crds/aggregatorconfigs.yaml",
    ]);
    for crd in di_api::crds() {
        let name = crd.metadata.name.unwrap();
        await_condition(crds.clone(), &name, is_crd_established())
            .await
            .unwrap();
    }
    let mut changed = Vec::new();
    for file in ["install.yaml", "install-webhook-only.yaml"] {
        kubectl.run(&["apply", "-f", file]);
        let again = kubectl.run(&["apply", "-f", file]);
        let lines = again.lines().filter(|line| !line.ends_with(" unchanged"));
        changed.extend(lines.map(|line| format!("{file}: {line}")));
    }
    // The kustomizations must apply, too, if this kubectl can build them.
    for folder in ["crds", "default", "webhook-only"] {
        if kubectl
            .command(&["kustomize", folder])
            .output()
            .unwrap()
            .status
            .success()
        {
            kubectl.run(&["apply", "-k", folder]);
        }
    }

    let params = DeleteParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    mutating.delete("di-webhook", &params).await.unwrap();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client);
    validating.delete("di-webhook", &params).await.unwrap();
    // The API server drops a deleted webhook with a delay.
    eventually("the samples are taken", async || {
        let args = ["apply", "--dry-run=server", "-k", "samples"];
        let output = kubectl.command(&args).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(complaints)
        }
    })
    .await;
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/samples");
    // The kustomization file is not a sample.
    let samples = std::fs::read_dir(samples).unwrap().count() - 1;
    let said = kubectl.run(&["apply", "-k", "samples"]);
    assert_eq!(said.lines().count(), samples, "{said}");
    let said = kubectl.run(&["get", "dijobs,agconfig", "--all-namespaces", "-o", "name"]);
    assert_eq!(said.lines().count(), samples, "{said}");
    assert!(changed.is_empty(), "applied a second time: {changed:?}");
}
