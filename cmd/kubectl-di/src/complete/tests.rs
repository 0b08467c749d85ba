use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

/// The completions of a line without a cluster.
async fn completions_of(line: &str) -> String {
    let words = words(line);
    let mut lookups = Lookups::new(Handle::current(), &words);
    lookups.options.kubeconfig = Some("/dev/null".into());
    spawn_blocking(move || kubectl_completions(&lookups, words))
        .await
        .unwrap()
}

#[tokio::test]
async fn commands_are_completed_with_descriptions() {
    let text = completions_of("rep").await;
    assert!(text.starts_with("replicas\t"), "{text}");
    assert!(text.ends_with(":4\n"), "{text}");
    let text = completions_of("").await;
    assert!(
        text.contains("\nget\tDisplay one or many jobs") && !text.contains("__"),
        "{text}"
    );
    assert!(!text.contains("--"), "{text}");
}

#[tokio::test]
async fn flags_are_completed_only_after_a_dash() {
    let text = completions_of("get --all").await;
    assert_eq!(
        text,
        "--all-namespaces\tIf present, list the requested jobs across all namespaces\n:4\n"
    );
    let text = completions_of("get --as").await;
    assert!(text.contains("--as-group\tGroup to impersonate"), "{text}");
}

#[tokio::test]
async fn output_formats_are_completed_with_descriptions() {
    for line in ["get -o ", "get --output=", "get -n x -o "] {
        let text = completions_of(line).await;
        assert!(
            text.contains("wide\tA table with more columns\n"),
            "{line}: {text}"
        );
        assert!(text.ends_with(":4\n"), "{text}");
    }
    assert_eq!(completions_of("get --output=ya").await, "yaml\tYAML\n:4\n");
    let text = completions_of("create x -o ").await;
    assert!(text.contains("yaml\t") && !text.contains("wide"), "{text}");
}

#[tokio::test]
async fn file_names_are_completed_by_the_shell() {
    for line in ["create -f ", "create --filename=", "get --kubeconfig "] {
        assert_eq!(completions_of(line).await, ":0\n", "{line}");
    }
}

#[tokio::test]
async fn unreachable_cluster_gives_no_completions_or_errors() {
    assert_eq!(completions_of("get ").await, ":4\n");
    assert_eq!(
        completions_of("no-such-verb ").await.lines().last(),
        Some(":4")
    );
}

#[tokio::test]
async fn wait_conditions_and_event_types_are_completed() {
    let text = completions_of("wait x --for=phase=Su").await;
    assert_eq!(text, "phase=Succeeded\nphase=Suspended\n:4\n");
    for proposed in ["create\n", "delete\n", "condition=\n", "jsonpath=\n"] {
        let text = completions_of("wait x --for ").await;
        assert!(text.contains(proposed), "{text}");
    }
    assert_eq!(
        completions_of("events --types ").await,
        "Normal\nWarning\n:4\n"
    );
}

#[test]
fn words_split_by_bash_are_joined() {
    for (typed, whole, before) in [
        ("exec x --role = lea", "exec x --role=lea", "--role="),
        ("exec x --role =", "exec x --role=", "--role="),
        (
            "wait --for = phase = Su",
            "wait --for=phase=Su",
            "--for=phase=",
        ),
        ("get -o jsonpath =", "get -o jsonpath=", "jsonpath="),
        ("get --role = leader ", "get --role=leader ", ""),
        ("get tr", "get tr", ""),
    ] {
        let (words, stays) = join_bash_words(words(typed));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!((words.join(" ").as_str(), stays.as_str()), (whole, before));
    }
}

#[test]
fn cluster_flags_before_the_word_are_used() {
    let options = connect_options(&words("get -n team --context=c --bogus -w jo"));
    assert_eq!(options.namespace.as_deref(), Some("team"));
    assert_eq!(options.context.as_deref(), Some("c"));
}
