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

#[tokio::test]
async fn a_namespace_that_is_not_there_is_told_of() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["doctor", "-n", "nosuchns"]).await;
    let told = "error    namespace     namespace nosuchns does not exist\n";
    assert!(said.stdout.contains(told), "{said}");
    assert!(!said.stdout.contains("not found"), "{said}");
    assert!(!said.stdout.contains("rights"), "{said}");
    assert_eq!(said.code, Some(1));
}
