use di_apiserver_tests::eventually;

use crate::plugin::Plugin;

#[tokio::test]
async fn doctor_reports_forbidden_checks_as_unknown() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["doctor", "--as=nobody"]).await;
    insta::assert_snapshot!(plugin.normalize_versions(&result));
}

#[tokio::test]
async fn editor_of_namespace_has_all_permissions() {
    let plugin = Plugin::new().await;
    plugin.space.bind_cluster_role("editor", "edit").await;
    // The API server applies new roles with a delay.
    eventually("the editor has all permissions", async || {
        let result = plugin.run(&["doctor", "--as=editor"]).await;
        if result.stdout.contains("you have all permissions") {
            Ok(())
        } else {
            Err(result.to_string())
        }
    })
    .await;
}

#[tokio::test]
async fn doctor_reports_only_the_unreachable_cluster() {
    let plugin = Plugin::new().await;
    let args = ["doctor", "--server=https://127.0.0.1:1", "-o", "yaml"];
    let result = plugin.run(&args).await;
    insta::assert_snapshot!(plugin.normalize(&result));
}

#[tokio::test]
async fn doctor_reports_a_missing_namespace() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["doctor", "-n", "nosuchns"]).await;
    let line = "error    namespace     namespace nosuchns does not exist\n";
    assert!(result.stdout.contains(line), "{result}");
    assert!(!result.stdout.contains("not found"), "{result}");
    assert!(!result.stdout.contains("permissions"), "{result}");
    assert_eq!(result.code, Some(1));
}
