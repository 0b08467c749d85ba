use di_apiserver_tests::{Account, Job};

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
        &["delete", "-l="],
        &["delete", "-l= ", "--field-selector=", "--now"],
        &["delete", "--all"],
        &["delete"],
        &["delete", "-A"],
        &["delete", "-A", "a"],
        &["delete", "a", "-f", "a.yaml"],
    ] {
        let said = plugin.run(words).await;
        note(&mut all, &words.join(" "), &said);
    }
    insta::assert_snapshot!(plugin.lasting(&all));
}

#[tokio::test]
async fn where_there_are_several_namespaces_each_is_told() {
    let plugin = Plugin::new().await;
    let label = format!("space={}", plugin.space.namespace);
    let labels = format!("--labels={label}");
    let said = plugin.run(&["create", "a", "--image=i", &labels]).await;
    assert_eq!(said.code, Some(0), "{said}");
    let words = ["delete", "-A", "-l", &label, "-i"];
    let said = plugin.run_with(&words, "y\n").await;
    insta::assert_snapshot!(plugin.lasting(&said), @r#"
    You are about to delete the following 1 resource(s):
    dijob.diengine.opendilab.org/a from NAMESPACE namespace
    Do you want to continue? (y/N): dijob.diengine.opendilab.org "a" deleted from NAMESPACE namespace
    "#);
}

#[tokio::test]
async fn who_may_delete_and_not_look_has_deleted() {
    let plugin = Plugin::new().await;
    let namespace = &plugin.space.namespace;
    plugin.space.create(&Job::new("j", 0)).await;
    Account::new(&plugin.space, "janitor", &["delete"]).await;
    let who = format!("--as=system:serviceaccount:{namespace}:janitor");
    plugin
        .until_may(&["delete", "j", &who, "--dry-run=server"])
        .await;
    let said = plugin.run(&["delete", "j", &who]).await;
    insta::assert_snapshot!(said, @r#"dijob.diengine.opendilab.org "j" deleted"#);
}

#[tokio::test]
async fn kubectls_flags_of_delete_are_heeded() {
    let plugin = Plugin::new().await;
    for name in ["a", "b", "c", "d"] {
        let said = plugin.run(&["create", name, "--image=i"]).await;
        assert_eq!(said.code, Some(0), "{said}");
    }
    plugin.space.create(&Job::new("held", 0).finalizer()).await;
    let mut all = String::new();
    for words in [
        &["delete", "--field-selector=metadata.name=a", "--now"][..],
        &["delete", "dijob", "b", "--force"],
        &["delete", "c", "--grace-period=0", "--dry-run=server"],
        &["delete", "c", "--now", "--grace-period=5"],
        &["delete", "c", "--force", "--grace-period=5"],
        &["delete", "held", "--timeout=50ms"],
    ] {
        let said = plugin.run(words).await;
        note(&mut all, &words.join(" "), &said);
    }
    for (answer, words) in [
        ("n\n", &["delete", "c", "-i"][..]),
        ("", &["delete", "c", "-i"]),
        ("y\n", &["delete", "c", "d", "-i"]),
    ] {
        let said = plugin.run_with(words, answer).await;
        note(&mut all, &words.join(" "), &said);
    }
    insta::assert_snapshot!(plugin.lasting(&all));
}
