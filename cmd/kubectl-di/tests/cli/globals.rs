use std::time::Duration;

use di_apiserver_tests::Job;

use crate::plugin::{CallResult, Plugin};

#[tokio::test]
async fn long_help_lists_the_connection_flags() {
    let plugin = Plugin::new().await;
    let help = plugin.run(&["get", "--help"]).await;
    insta::assert_snapshot!("help_of_a_command", plugin.normalize(&help));
    let short = plugin.run(&["get", "-h"]).await;
    assert!(!short.stdout.contains("--kubeconfig"), "{short}");
}

#[tokio::test]
async fn server_and_token_flags_replace_the_kubeconfig() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let server = plugin.space.server;
    let (url, ca) = (server.url(), server.dir().join("ca.crt"));
    let (ca, namespace) = (ca.to_str().unwrap(), plugin.space.namespace.as_str());
    let token = server.token();
    let all = [
        "get",
        "x",
        "-o",
        "name",
        "--kubeconfig=/dev/null",
        "-s",
        &url,
    ];
    let all = [
        &all[..],
        &[
            "--certificate-authority",
            ca,
            "--token",
            token,
            "-n",
            namespace,
        ],
    ]
    .concat();
    let result = plugin.run(&all).await;
    assert_eq!(
        result.stdout, "dijob.diengine.opendilab.org/x\n",
        "{result}"
    );

    // --insecure-skip-tls-verify skips the check of the name; without it, the name is checked.
    let trusting = [
        "get",
        "-o",
        "name",
        "--insecure-skip-tls-verify",
        "--tls-server-name=other",
    ];
    let result = plugin.run(&trusting).await;
    assert_eq!(result.code, Some(0), "{result}");
    let result = plugin.run(&["get", "--tls-server-name=other"]).await;
    assert_eq!(result.code, Some(1), "{result}");
    assert!(result.stderr.contains("certificate"), "{result}");
}

#[tokio::test]
async fn invalid_token_is_not_printed() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["get", "--token=hidden-secret"]).await;
    assert_eq!(result.code, Some(1), "{result}");
    assert!(
        result
            .stderr
            .contains("error: You must be logged in to the server (Unauthorized)"),
        "{result}"
    );
    assert!(!result.to_string().contains("hidden-secret"), "{result}");
}

#[tokio::test]
async fn impersonation_flags_are_used() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["get", "--as=nobody"]).await;
    insta::assert_snapshot!(plugin.normalize(&result));
    let result = plugin
        .run(&["get", "--as=nobody", "--as-group=system:masters"])
        .await;
    assert_eq!(result.code, Some(0), "{result}");
    let result = plugin.run(&["get", "--as-group=system:masters"]).await;
    insta::assert_snapshot!("a_group_without_a_user", plugin.normalize(&result));
}

#[tokio::test]
async fn invalid_connection_flags_are_named() {
    let plugin = Plugin::new().await;
    for (name, flags) in [
        ("no_such_file", &["--client-key=missing.key"][..]),
        ("no_such_context", &["--context=missing"]),
        (
            "trust_all_or_one",
            &[
                "--insecure-skip-tls-verify",
                "--certificate-authority=config",
            ],
        ),
    ] {
        let result = plugin.run(&[&["get"], flags].concat()).await;
        insta::assert_snapshot!(name, plugin.normalize(&result));
    }
}

#[tokio::test]
async fn help_command_equals_help_flag() {
    let plugin = Plugin::new().await;
    for (words, flag) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "replicas", "add"], &["replicas", "add", "--help"]),
    ] {
        let (result, wanted) = tokio::join!(plugin.run(words), plugin.run(flag));
        assert!(result.stdout.contains("Usage: "), "{words:?}: {result}");
        assert_eq!(result.to_string(), wanted.to_string(), "{words:?}");
    }
    for words in [&["help", "no-such-verb"][..], &["replicas"]] {
        let result = plugin.run(words).await;
        assert_eq!(result.code, Some(2), "{result}");
    }
}

#[tokio::test]
async fn last_value_of_a_repeated_flag_is_used() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let namespace = plugin.space.namespace.as_str();
    let words = ["get", "-n=nowhere", "-n", namespace, "-o=yaml", "-oname"];
    let result = plugin.run(&words).await;
    assert_eq!(
        result.to_string(),
        "dijob.diengine.opendilab.org/x\n",
        "{result}"
    );
}

#[tokio::test]
async fn empty_namespace_means_the_current_one() {
    let plugin = Plugin::new().await;
    let other = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    other.space.create(&Job::new("y", 0)).await;
    let result = plugin
        .run(&["suspend", "--all", "-n", "", "--context="])
        .await;
    assert_eq!(
        result.to_string(),
        "dijob.diengine.opendilab.org/x suspended\n"
    );
}

#[tokio::test]
async fn invalid_names_are_rejected() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("train", 0)).await;
    let elsewhere = serde_json::json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob", "metadata": {"name": "train?x", "namespace": "a/b"},
    });
    plugin.file("elsewhere.yaml", elsewhere);
    let calls: [&[&str]; 8] = [
        &["resume", "train?dryRun=All"],
        &["create", "-f", "elsewhere.yaml"],
        &["get", "tr%61in"],
        &["get", "train", "-n", "a/b"],
        &["wait", "train#x", "--for=phase=Running"],
        &["logs", ".."],
        &["suspend", "train x"],
        &["replicas", "list", "tr%61in"],
    ];
    let session = plugin.session(&calls).await;
    insta::assert_snapshot!(plugin.normalize(&session));
    let result = plugin.run(&["get", "-o", "name"]).await;
    assert_eq!(result.stdout, "dijob.diengine.opendilab.org/train\n");
}

#[tokio::test]
async fn missing_kubeconfig_is_named() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["get", "--kubeconfig=/nope"]).await;
    assert_eq!(
        result.to_string(),
        "stderr: error: error loading config file \"/nope\": No such file or directory (os error 2)\nexit code 1\n"
    );
    let mut command = plugin.command(&["get"]);
    let result = CallResult::of(command.env("KUBECONFIG", "/nope").output().await.unwrap());
    assert_eq!(
        result.to_string(),
        "stderr: error: no cluster is configured: no file of KUBECONFIG=/nope exists\nexit code 1\n"
    );
}

#[tokio::test]
async fn loopback_addresses_bypass_the_proxy() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let mut command = plugin.command(&["get", "-o", "name"]);
    command.env("HTTPS_PROXY", "http://127.0.0.1:9");
    let result = CallResult::of(command.output().await.unwrap());
    assert_eq!(result.to_string(), "dijob.diengine.opendilab.org/x\n");
}

#[tokio::test]
async fn watch_ends_after_the_request_timeout() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let calls: [&[&str]; 3] = [&["get", "-w"], &["get", "x", "-w"], &["events", "-w"]];
    let all = calls.map(async |call| {
        // The timeout includes the first list.
        let words = [call, &["--request-timeout=10s"]].concat();
        let ended = tokio::time::timeout(Duration::from_secs(120), plugin.run(&words));
        let result = ended.await.unwrap();
        assert_eq!(
            (result.code, result.stderr.contains("error")),
            (Some(0), false),
            "{call:?}: {result}"
        );
    });
    futures::future::join_all(all).await;
}
