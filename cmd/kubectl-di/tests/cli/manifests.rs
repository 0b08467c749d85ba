//! The sources of manifests.

use di_apiserver_tests::Job;
use kube::api::ListParams;

use crate::plugin::Plugin;

#[tokio::test]
async fn manifest_is_read_from_file_directory_or_stdin() {
    let plugin = Plugin::new().await;
    plugin.file("a.json", Job::new("a", 1).json());
    let from_file = plugin.run(&["create", "-f", "a.json"]).await;
    assert_eq!(
        plugin.normalize(&from_file),
        "dijob.diengine.opendilab.org/a created\n"
    );
    let again = Job::new("b", 1).json().to_string();
    let from_input = plugin.run_with(&["create", "-f", "-"], &again).await;
    assert_eq!(
        plugin.normalize(&from_input),
        "dijob.diengine.opendilab.org/b created\n"
    );
    plugin.file("b.json", again);
    let folder = plugin.dir().to_str().unwrap();
    let from_folder = plugin
        .run(&["create", "-f", folder, "--dry-run=client"])
        .await;
    assert_eq!(
        plugin.normalize(&from_folder),
        "dijob.diengine.opendilab.org/a created (dry run)\ndijob.diengine.opendilab.org/b created (dry run)\n"
    );
    let jobs = plugin.space.jobs();
    let jobs = jobs.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(jobs.len(), 2, "a dry run makes none");
}
