use crate::plugin::Plugin;

#[tokio::test]
async fn client_version_needs_no_cluster() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["version", "--client"]).await;
    assert_eq!(result.code, Some(0), "{result}");
    assert!(
        result.stdout.contains(env!("CARGO_PKG_VERSION")),
        "{result}"
    );
}

#[tokio::test]
async fn version_without_the_orchestrator_succeeds() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["version"]).await;
    insta::assert_snapshot!(plugin.normalize_versions(&result));
    let result = plugin.run(&["version", "-o", "json"]).await;
    insta::assert_snapshot!("as_json", plugin.normalize_versions(&result));
}

#[tokio::test]
async fn unreachable_cluster_still_prints_the_client_version() {
    let plugin = Plugin::new().await;
    let result = plugin
        .run(&["version", "--server=https://127.0.0.1:1"])
        .await;
    insta::assert_snapshot!(plugin.normalize_versions(&result));
}
