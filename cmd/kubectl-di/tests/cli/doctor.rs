use crate::plugin::Plugin;

#[tokio::test]
async fn what_one_may_not_see_is_not_broken() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["doctor", "--as=nobody"]).await;
    insta::assert_snapshot!(plugin.lasting_anywhere(&said));
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_the_only_finding() {
    let plugin = Plugin::new().await;
    let args = ["doctor", "--server=https://127.0.0.1:1", "-o", "yaml"];
    let said = plugin.run(&args).await;
    insta::assert_snapshot!(plugin.lasting(&said));
}
