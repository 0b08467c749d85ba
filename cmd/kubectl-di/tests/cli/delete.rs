use crate::plugin::{Plugin, note};

#[tokio::test]
async fn jobs_are_deleted_as_kubectl_deletes() {
    let plugin = Plugin::new().await;
    for name in ["a", "b", "c", "d"] {
        let label = if name == "a" {
            "--labels=t=x"
        } else {
            "--labels=t=y"
        };
        let said = plugin.run(&["create", name, "--image=i", label]).await;
        assert_eq!(said.code, Some(0), "{said}");
    }
    let mut all = String::new();
    for words in [
        &["delete", "a", "--dry-run=client"][..],
        &["delete", "missing", "--dry-run=client"],
        &["delete", "a", "--dry-run=server", "-o=name"],
        &["delete", "-l=t=x"],
        &["delete", "-l=t=x"],
        &["delete", "dijobs/b", "missing"],
        &["delete", "missing", "--ignore-not-found"],
        &["delete", "--all"],
        &["delete"],
        &["delete", "a", "-f", "a.yaml"],
    ] {
        let said = plugin.run(words).await;
        note(&mut all, &words.join(" "), &said);
    }
    insta::assert_snapshot!(plugin.lasting(&all));
}
