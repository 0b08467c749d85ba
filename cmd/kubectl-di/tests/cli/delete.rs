use di_apiserver_tests::{Account, Job};

use crate::plugin::{Plugin, add_call};

#[tokio::test]
async fn delete_output_equals_kubectl() {
    let plugin = Plugin::new().await;
    for name in ["a", "b", "c", "d"] {
        let label = if name == "a" {
            "--labels=t=x"
        } else {
            "--labels=t=y"
        };
        let result = plugin.run(&["create", name, "--image=i", label]).await;
        assert_eq!(result.code, Some(0), "{result}");
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
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
}

#[tokio::test]
async fn delete_in_all_namespaces_prints_the_namespace() {
    let plugin = Plugin::new().await;
    let label = format!("space={}", plugin.space.namespace);
    let labels = format!("--labels={label}");
    let result = plugin.run(&["create", "a", "--image=i", &labels]).await;
    assert_eq!(result.code, Some(0), "{result}");
    let words = ["delete", "-A", "-l", &label, "-i"];
    let result = plugin.run_with(&words, "y\n").await;
    insta::assert_snapshot!(plugin.normalize(&result), @r#"
    You are about to delete the following 1 resource(s):
    dijob.diengine.opendilab.org/a from NAMESPACE namespace
    Do you want to continue? (y/N): dijob.diengine.opendilab.org "a" deleted from NAMESPACE namespace
    "#);
}

#[tokio::test]
async fn delete_without_the_right_to_get_succeeds() {
    let plugin = Plugin::new().await;
    let namespace = &plugin.space.namespace;
    plugin.space.create(&Job::new("j", 0)).await;
    Account::new(&plugin.space, "janitor", &["delete"]).await;
    let who = format!("--as=system:serviceaccount:{namespace}:janitor");
    plugin
        .run_until_allowed(&["delete", "j", &who, "--dry-run=server"])
        .await;
    let result = plugin.run(&["delete", "j", &who]).await;
    insta::assert_snapshot!(result, @r#"dijob.diengine.opendilab.org "j" deleted"#);
}

#[tokio::test]
async fn delete_supports_the_flags_of_kubectl() {
    let plugin = Plugin::new().await;
    for name in ["a", "b", "c", "d"] {
        let result = plugin.run(&["create", name, "--image=i"]).await;
        assert_eq!(result.code, Some(0), "{result}");
    }
    plugin
        .space
        .create(&Job::new("blocked", 0).finalizer())
        .await;
    let mut all = String::new();
    for words in [
        &["delete", "--field-selector=metadata.name=a", "--now"][..],
        &["delete", "dijob", "b", "--force"],
        &["delete", "c", "--grace-period=0", "--dry-run=server"],
        &["delete", "c", "--now", "--grace-period=5"],
        &["delete", "c", "--force", "--grace-period=5"],
        &["delete", "blocked", "--timeout=50ms"],
    ] {
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    for (answer, words) in [
        ("n\n", &["delete", "c", "-i"][..]),
        ("", &["delete", "c", "-i"]),
        ("y\n", &["delete", "c", "d", "-i"]),
    ] {
        let result = plugin.run_with(words, answer).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
}
