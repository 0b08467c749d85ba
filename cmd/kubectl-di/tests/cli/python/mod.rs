//! `DIClient` of the Python package, with the server and the kubeconfig of the plugin.

use std::{fs, path::Path};

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, exit};
use tokio::process::Command;

use crate::plugin::{CallResult, Plugin};

const PACKAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../python/src/di_orchestrator"
);
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/python/client.py");

/// Copies the Python package with its native module into a folder.
fn install_package(folder: &Path) {
    let package = folder.join("di_orchestrator");
    fs::create_dir(&package).unwrap();
    for file in fs::read_dir(PACKAGE).unwrap() {
        let file = file.unwrap().path();
        if file.is_file() {
            fs::copy(&file, package.join(file.file_name().unwrap())).unwrap();
        }
    }
    // Cargo builds it next to this test, since it is a dev-dependency. `cargo test` alone would
    // not build the module of a member of the workspace.
    let module = std::env::current_exe().unwrap();
    let module = module.with_file_name("libdi_python.so");
    let copied = fs::copy(&module, package.join("_native.abi3.so"));
    copied.unwrap_or_else(|error| panic!("{}: {error}", module.display()));
}

#[test]
fn python_package_has_the_version_of_the_plugin() {
    let init = fs::read_to_string(Path::new(PACKAGE).join("__init__.py")).unwrap();
    let version = format!("\n__version__ = {:?}\n", env!("CARGO_PKG_VERSION"));
    assert!(init.contains(&version), "{init}");
}

#[tokio::test]
async fn python_client_manages_jobs() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    for (job, code, phase) in [("done", 0, Phase::Succeeded), ("failed", 3, Phase::Failed)] {
        plugin.space.create(&Job::new(job, 0)).await;
        plugin.space.until_phase(job, Phase::Running).await;
        exit(&plugin.space.pods(), &format!("{job}-coordinator"), code).await;
        plugin.space.until_phase(job, phase).await;
    }
    plugin.space.until_event("done", "SuccessfulCreate").await;
    plugin.file("job.yaml", Job::new("from-file", 0).json());
    install_package(plugin.dir());
    let output = Command::new("python3")
        .args(["-W", "error", SCRIPT])
        .current_dir(plugin.dir())
        .env("KUBECONFIG", plugin.dir().join("config"))
        .env("PYTHONPATH", plugin.dir())
        .kill_on_drop(true)
        .output();
    let result = CallResult::of(output.await.unwrap());
    assert_eq!(result.code, Some(0), "{result}");
}
