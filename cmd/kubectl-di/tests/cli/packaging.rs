//! Checks the Krew manifest against the release workflow, and the generated man pages.

use std::{collections::BTreeSet, path::Path};

use regex::Regex;
use serde_json::Value;

fn read(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(file)).unwrap()
}

/// The archives that the workflow uploads, such as `linux_amd64.tar.gz`.
fn release_archives() -> BTreeSet<String> {
    let workflow: Value = serde_saphyr::from_str(&read(".github/workflows/release.yml")).unwrap();
    let plugin = &workflow["jobs"]["plugin"];
    let archive = plugin["env"]["ARCHIVE"].as_str().unwrap();
    assert_eq!(
        archive,
        "kubectl-di_${{ matrix.platform }}.${{ matrix.archive }}"
    );
    let matrix = plugin["strategy"]["matrix"]["include"].as_array().unwrap();
    let name = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        format!("{}.{}", text("platform"), text("archive"))
    };
    matrix.iter().map(name).collect()
}

#[test]
fn krew_manifest_names_the_release_archives() {
    let template = read(".krew.yaml");
    let address = Regex::new(r#"\{\{addURIAndSha "([^"]*)" \.TagName \}\}"#).unwrap();
    // Fill in the template like the Krew release bot.
    let filled = address.replace_all(&template, "uri: $1\n    sha256: \"00\"");
    let filled = filled.replace("{{ .TagName }}", "v1.2.3");
    assert!(!filled.contains("{{"), "{filled}");
    let manifest: Value = serde_saphyr::from_str(&filled).unwrap();
    assert_eq!(manifest["metadata"]["name"], "di");
    assert_eq!(manifest["spec"]["version"], "v1.2.3");
    let short = manifest["spec"]["shortDescription"].as_str().unwrap();
    assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
    let repository = env!("CARGO_PKG_REPOSITORY");
    let mut named = BTreeSet::new();
    for platform in manifest["spec"]["platforms"].as_array().unwrap() {
        let labels = &platform["selector"]["matchLabels"];
        let (os, arch) = (
            labels["os"].as_str().unwrap(),
            labels["arch"].as_str().unwrap(),
        );
        let uri = platform["uri"].as_str().unwrap();
        let begin = format!("{repository}/releases/download/v1.2.3/kubectl-di_");
        let name = uri.strip_prefix(&begin).unwrap_or_else(|| panic!("{uri}"));
        assert!(
            name.starts_with(&format!("{os}_{arch}.")),
            "{name} for {os} on {arch}"
        );
        let program = if os == "windows" {
            "kubectl-di.exe"
        } else {
            "kubectl-di"
        };
        assert_eq!(platform["bin"], program);
        named.insert(name.to_owned());
    }
    assert_eq!(named, release_archives());
}

#[test]
fn release_workflow_builds_every_platform() {
    let platforms: Vec<_> = release_archives().into_iter().collect();
    assert_eq!(
        platforms,
        [
            "darwin_amd64.tar.gz",
            "darwin_arm64.tar.gz",
            "linux_amd64.tar.gz",
            "linux_arm64.tar.gz",
            "windows_amd64.zip",
        ]
    );
}

#[test]
fn man_pages_and_completions_are_generated() {
    let folder = tempfile::tempdir().unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-di"))
        .arg("__generate")
        .arg(folder.path())
        .status();
    assert!(status.unwrap().success());
    let man = folder.path().join("share/man/man1");
    for page in [
        "kubectl-di.1",
        "kubectl-di-get.1",
        "kubectl-di-replicas-add.1",
    ] {
        let text = std::fs::read_to_string(man.join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
        assert!(text.contains("namespace"), "{page} lists the global flags");
        assert!(
            text.contains("the namespace scope for this CLI request"),
            "{page} describes the global flags"
        );
    }
    let pages = std::fs::read_dir(&man).unwrap();
    let hidden = pages.filter(|page| {
        let name = page.as_ref().unwrap().file_name();
        name.to_string_lossy().contains("__")
    });
    assert_eq!(hidden.count(), 0);
    for script in [
        "share/bash-completion/completions/kubectl-di",
        "share/zsh/site-functions/_kubectl-di",
        "share/fish/vendor_completions.d/kubectl-di.fish",
    ] {
        let text = std::fs::read_to_string(folder.path().join(script)).unwrap();
        assert!(text.contains("KUBECTL_DI_COMPLETE"), "{script}: {text}");
    }
}
