use crate::plugin::Plugin;

#[tokio::test]
async fn the_plugins_own_version_takes_no_cluster() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["version", "--client"]).await;
    assert_eq!(said.code, Some(0), "{said}");
    assert!(said.stdout.contains(env!("CARGO_PKG_VERSION")), "{said}");
}

#[tokio::test]
async fn a_cluster_without_the_orchestrator_is_no_error() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["version"]).await;
    insta::assert_snapshot!(plugin.lasting_anywhere(&said));
    let said = plugin.run(&["version", "-o", "json"]).await;
    insta::assert_snapshot!("as_json", plugin.lasting_anywhere(&said));
}

#[tokio::test]
async fn what_is_known_without_the_cluster_is_shown_all_the_same() {
    let plugin = Plugin::new().await;
    let said = plugin
        .run(&["version", "--server=https://127.0.0.1:1"])
        .await;
    insta::assert_snapshot!(plugin.lasting(&said));
}
