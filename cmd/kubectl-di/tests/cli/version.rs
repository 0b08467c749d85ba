use crate::plugin::Plugin;

#[tokio::test]
async fn the_plugins_own_version_takes_no_cluster() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["version", "--client"]).await;
    assert_eq!(said.code, Some(0), "{said}");
    assert!(said.stdout.contains(env!("CARGO_PKG_VERSION")), "{said}");
}
