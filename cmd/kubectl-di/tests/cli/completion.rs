use std::path::Path;

use di_apiserver_tests::Job;
use tokio::process::Command;

use crate::plugin::Plugin;

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
        (&["suspend", ""], &["other", "train-a", "train-b"]),
        (&["exec", "train-b"], &["train-b"]),
        (&["queue", "train-"], &["train-a", "train-b"]),
        (&["create", ""], &[]),
        (&["logs", "-n", "no-such-namespace", ""], &[]),
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
}

#[tokio::test]
async fn commands_and_flags_are_completed_with_descriptions() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["__complete", "get", "--o"]).await;
    assert!(
        result.stdout.starts_with("--output\tOutput format"),
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
async fn bash_completes_names_and_values() {
    let plugin = Plugin::new().await;
    for name in ["train", "trial"] {
        plugin.space.create(&Job::new(name, 0)).await;
    }
    for (line, shown) in [
        ("exec train --role lea", "exec train --role learner"),
        ("get tra", "get train"),
        ("get --output ya", "get --output yaml"),
        ("describe tri", "describe trial"),
    ] {
        let bash = "PS1='$ ' bash --norc --noprofile";
        let terminal = plugin.shell(120, 10, bash);
        terminal.until("a prompt", |s| s.contains('$')).await;
        let load = "eval \"$(kubectl-di completion bash)\"; clear";
        terminal.press(&[load, "Enter"]);
        terminal.until("it knows", |s| !s.contains("eval")).await;
        terminal.press(&[&format!("kubectl-di {LOOKUP_TIMEOUT} {line}"), "Tab"]);
        terminal.until(shown, |s| s.contains(shown)).await;
    }
}
