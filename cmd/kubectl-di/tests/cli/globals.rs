use std::time::Duration;

use di_apiserver_tests::Job;

use crate::plugin::{Plugin, Said};

#[tokio::test]
async fn options_lists_what_every_command_takes() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["options"]).await;
    insta::assert_snapshot!(plugin.lasting(&said));
    let help = plugin.run(&["get", "--help"]).await;
    insta::assert_snapshot!("help_of_a_command", plugin.lasting(&help));
}

#[tokio::test]
async fn an_address_and_a_token_are_enough() {
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
    let said = plugin.run(&all).await;
    assert_eq!(said.stdout, "dijob.diengine.opendilab.org/x\n", "{said}");

    // Whoever sits between is not looked at, but the name of the certificate is, where one is asked for.
    let trusting = [
        "get",
        "-o",
        "name",
        "--insecure-skip-tls-verify",
        "--tls-server-name=other",
    ];
    let said = plugin.run(&trusting).await;
    assert_eq!(said.code, Some(0), "{said}");
    let said = plugin.run(&["get", "--tls-server-name=other"]).await;
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.contains("certificate"), "{said}");
}

#[tokio::test]
async fn secrets_are_never_shown() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["get", "--token=hidden-secret", "-v=9"]).await;
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.contains("401 Unauthorized in "), "{said}");
    assert!(
        said.stderr
            .contains("error: You must be logged in to the server (Unauthorized)"),
        "{said}"
    );
    assert!(!said.to_string().contains("hidden-secret"), "{said}");
    let said = plugin
        .run(&["get", "--token=hidden-secret", "--password=hidden-too"])
        .await;
    assert_eq!(
        said.to_string(),
        "stderr: error: pass either --token or --username and --password\nexit code 1\n"
    );
}

#[tokio::test]
async fn one_acts_as_somebody_else() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["get", "--as=nobody"]).await;
    insta::assert_snapshot!(plugin.lasting(&said));
    let said = plugin
        .run(&[
            "get",
            "--as=nobody",
            "--as-group=system:masters",
            "--as-uid=1",
        ])
        .await;
    assert_eq!(said.code, Some(0), "{said}");
    let said = plugin.run(&["get", "--as-group=system:masters"]).await;
    insta::assert_snapshot!("a_group_without_a_user", plugin.lasting(&said));
}

#[tokio::test]
async fn flags_that_cannot_be_honoured_are_named() {
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
        let said = plugin.run(&[&["get"], flags].concat()).await;
        insta::assert_snapshot!(name, plugin.lasting(&said));
    }
}

#[tokio::test]
async fn help_is_asked_for_as_of_kubectl() {
    let plugin = Plugin::new().await;
    for (words, flag) in [
        (&[][..], &["--help"][..]),
        (&["help"], &["--help"]),
        (&["replicas"], &["replicas", "--help"]),
        (&["help", "replicas", "add"], &["replicas", "add", "--help"]),
    ] {
        let (said, wanted) = tokio::join!(plugin.run(words), plugin.run(flag));
        assert!(said.stdout.contains("Usage: "), "{words:?}: {said}");
        assert_eq!(said.to_string(), wanted.to_string(), "{words:?}");
    }
    let said = plugin.run(&["help", "no-such-verb"]).await;
    assert_eq!(said.code, Some(1), "{said}");
}

#[tokio::test]
async fn flags_are_taken_as_kubectl_takes_them() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let namespace = plugin.space.namespace.as_str();
    let words = [
        "get",
        "dijobs",
        "-n=nowhere",
        "-n",
        namespace,
        "-o=yaml",
        "-oname",
        "-A=false",
        "--watch=true",
        "--watch=f",
        "--log-flush-frequency=1s",
        "--profile=none",
        "--vmodule=x=1",
        "--kuberc=off",
    ];
    let said = plugin.run(&words).await;
    assert_eq!(
        said.to_string(),
        "dijob.diengine.opendilab.org/x\n",
        "{said}"
    );
}

#[tokio::test]
async fn an_empty_namespace_is_not_all_of_them() {
    let plugin = Plugin::new().await;
    let other = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    other.space.create(&Job::new("y", 0)).await;
    let said = plugin
        .run(&["delete", "--all", "-n", "", "--context=", "--wait=false"])
        .await;
    assert_eq!(
        said.to_string(),
        "dijob.diengine.opendilab.org \"x\" deleted\n"
    );
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("train", 0)).await;
    let elsewhere = serde_json::json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob", "metadata": {"name": "train?x", "namespace": "a/b"},
    });
    plugin.file("elsewhere.yaml", elsewhere);
    let calls: [&[&str]; 8] = [
        &["delete", "train?dryRun=All"],
        &["delete", "-f", "elsewhere.yaml"],
        &["get", "tr%61in"],
        &["get", "train", "-n", "a/b"],
        &["wait", "train#x", "--for=create"],
        &["logs", ".."],
        &["suspend", "train x"],
        &["replicas", "list", "tr%61in"],
    ];
    let session = plugin.session(&calls).await;
    insta::assert_snapshot!(plugin.lasting(&session));
    let said = plugin.run(&["get", "-o", "name"]).await;
    assert_eq!(said.stdout, "dijob.diengine.opendilab.org/train\n");
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let plugin = Plugin::new().await;
    let said = plugin.run(&["get", "--kubeconfig=/nope"]).await;
    assert_eq!(
        said.to_string(),
        "stderr: error: stat /nope: no such file or directory\nexit code 1\n"
    );
    let mut command = plugin.command(&["get"]);
    let said = Said::of(command.env("KUBECONFIG", "/nope").output().await.unwrap());
    assert_eq!(
        said.to_string(),
        "stderr: error: no cluster is configured: KUBECONFIG=/nope names no file that exists\nexit code 1\n"
    );
}

#[tokio::test]
async fn no_proxy_stands_before_this_machine() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let mut command = plugin.command(&["get", "-o", "name"]);
    command.env("HTTPS_PROXY", "http://127.0.0.1:9");
    let said = Said::of(command.output().await.unwrap());
    assert_eq!(said.to_string(), "dijob.diengine.opendilab.org/x\n");
}

#[tokio::test]
async fn a_watch_ends_when_the_time_for_a_request_is_over() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let calls: [&[&str]; 4] = [
        &["get", "-w"],
        &["get", "x", "-w"],
        &["get", "--watch-only"],
        &["events", "-w"],
    ];
    let all = calls.map(async |call| {
        // The first list has to be answered in that time, too.
        let words = [call, &["--request-timeout=10s"]].concat();
        let ended = tokio::time::timeout(Duration::from_secs(120), plugin.run(&words));
        let said = ended.await.unwrap();
        assert_eq!(
            (said.code, said.stderr.contains("error")),
            (Some(0), false),
            "{call:?}: {said}"
        );
    });
    futures::future::join_all(all).await;
}
