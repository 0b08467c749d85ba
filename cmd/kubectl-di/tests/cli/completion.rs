use std::path::Path;

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::Job;
use serde_json::json;
use tokio::process::Command;

use crate::plugin::{Plugin, add_call};

/// Debug builds on busy machines need more than the default timeout.
const LOOKUP_TIMEOUT: &str = "--request-timeout=1m";

#[tokio::test]
async fn kubectl_gets_names_for_completion() {
    let plugin = Plugin::new().await;
    for name in ["train-a", "train-b", "other"] {
        plugin.space.create(&Job::new(name, 0)).await;
    }
    for (words, lines) in [
        (&["get", "train-"][..], &["train-a", "train-b"][..]),
        (&["get", "train-a", "tr"], &["train-b"]),
        (&["delete", ""], &["other", "train-a", "train-b"]),
        (&["logs", "-n", "no-such-namespace", ""], &[]),
        (&["get", "--context="], &["test"]),
        (&["get", "--user", ""], &["admin"]),
    ] {
        let result = plugin
            .run(&[&["__complete", LOOKUP_TIMEOUT], words].concat())
            .await;
        let mut wanted = lines.join("\n");
        if !lines.is_empty() {
            wanted.push('\n');
        }
        assert_eq!(result.stdout, format!("{wanted}:4\n"), "{words:?}");
        assert_eq!(
            (result.code, result.stderr.as_str()),
            (Some(0), ""),
            "{words:?}"
        );
    }
    let namespace = plugin.space.namespace.as_str();
    let result = plugin
        .run(&[
            "__complete",
            LOOKUP_TIMEOUT,
            "get",
            "--namespace",
            namespace,
        ])
        .await;
    assert_eq!(result.stdout, format!("{namespace}\n:4\n"));
}

#[tokio::test]
async fn commands_and_flags_are_completed_with_descriptions() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["__complete", "get", "--o"]).await;
    assert!(
        result
            .stdout
            .starts_with("--output\tOutput format. One of: "),
        "{result}"
    );
    let result = plugin.run(&["__complete", "replicas", ""]).await;
    assert!(result.stdout.contains("list\t"), "{result}");
}

#[tokio::test]
async fn failed_lookup_gives_no_completions_or_errors() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    for words in [
        &["get", "--as=nobody", ""][..],
        &["get", "--server=https://127.0.0.1:1", ""],
        &["get", "--kubeconfig=missing", ""],
    ] {
        let result = plugin
            .run(&[&["__complete", LOOKUP_TIMEOUT], words].concat())
            .await;
        assert_eq!(result.to_string(), ":4\n", "{words:?}");
    }
}

#[tokio::test]
async fn bash_script_calls_the_plugin() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let script = plugin.run(&["completion", "bash"]).await;
    assert!(script.stdout.contains("complete "), "{script}");
    // Call the plugin like the script does.
    let mut command = plugin.command(&["--", "kubectl-di", LOOKUP_TIMEOUT, "get", ""]);
    command
        .env("KUBECTL_DI_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "3")
        .env("_CLAP_IFS", "\n");
    let result = command.output().await.unwrap();
    let result = String::from_utf8(result.stdout).unwrap();
    assert!(result.lines().any(|line| line == "x"), "{result}");
}

#[tokio::test]
async fn completion_kubectl_prints_the_program() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("x", 0)).await;
    let result = plugin.run(&["completion", "kubectl"]).await;
    let program = plugin.file("kubectl_complete-di", &result.stdout);
    // Run it like kubectl does: with the plugin on the PATH.
    let folder = Path::new(env!("CARGO_BIN_EXE_kubectl-di"))
        .parent()
        .unwrap();
    let path = std::env::var("PATH").unwrap();
    let result = Command::new("sh")
        .arg(program)
        .args([LOOKUP_TIMEOUT, "get", ""])
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("KUBECONFIG", plugin.dir().join("config"))
        .output()
        .await;
    assert_eq!(
        String::from_utf8(result.unwrap().stdout).unwrap(),
        "x\n:4\n"
    );
}

#[tokio::test]
async fn replicas_and_groups_of_the_named_job_are_completed() {
    let plugin = Plugin::new().await;
    let manager = plugin.space.manager("manager");
    let group = json!([{"name": "big", "replicas": 0}, {"name": "bold", "replicas": 0}]);
    let job =
        |name: &str| Job::new(name, 1).with(|spec| spec["collector"]["groups"] = group.clone());
    for name in ["one", "two"] {
        plugin.space.create(&job(name)).await;
        let made = |status: &DIJobStatus| status.plan.iter().any(|entry| entry.uid.is_some());
        plugin.space.until(name, "a pod is made", made).await;
        plugin.space.until_phase(name, Phase::Created).await;
    }
    manager.stop().await;
    let mut all = String::new();
    for words in [
        &["replicas", "restart", "one", ""][..],
        &["replicas", "delete", "two", ""],
        &["replicas", "delete", "two", "two-coo"],
        &["exec", "one/"],
        &["port-forward", "two/two-coll"],
        &["port-forward", "o"],
        &["exec", "nope/"],
        &["replicas", "set", "one", "--group", ""],
        &["replicas", "add", "two", "--group=bo"],
        &["replicas", "set", "--group", ""],
        &["logs", "one", "-c", ""],
        &["exec", "two/two-coordinator", "--container=di-"],
        &["logs", "-c", ""],
    ] {
        let result = plugin
            .run(&[&["__complete", LOOKUP_TIMEOUT], words].concat())
            .await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
}

#[tokio::test]
async fn bash_completes_words_with_equals_signs() {
    let plugin = Plugin::new().await;
    for name in ["train", "trial"] {
        plugin.space.create(&Job::new(name, 0)).await;
    }
    let (ns, _) = plugin.space.namespace.split_at(4);
    for (line, shown) in [
        (
            "exec train --role=lea",
            "exec train --role=learner".to_owned(),
        ),
        (
            &format!("get --namespace={ns}")[..],
            format!("get --namespace={ns}"),
        ),
        ("get tra", "get train".to_owned()),
        ("get -o jsonp", "get -o jsonpath".to_owned()),
        ("get --output=ya", "get --output=yaml".to_owned()),
        ("wait train --for=del", "wait train --for=delete".to_owned()),
        (
            "wait train --for=phase=Suc",
            "wait train --for=phase=Succeeded".to_owned(),
        ),
        ("describe dijob/tra", "describe dijob/train".to_owned()),
        ("exec dijob/tri", "exec dijob/trial".to_owned()),
    ] {
        let bash = "PS1='$ ' bash --norc --noprofile";
        let terminal = plugin.shell(120, 10, bash);
        terminal.until("a prompt", |s| s.contains('$')).await;
        let load = "eval \"$(kubectl-di completion bash)\"; clear";
        terminal.press(&[load, "Enter"]);
        terminal.until("it knows", |s| !s.contains("eval")).await;
        terminal.press(&[&format!("kubectl-di {LOOKUP_TIMEOUT} {line}"), "Tab"]);
        terminal.until(&shown, |s| s.contains(&shown)).await;
    }
}
