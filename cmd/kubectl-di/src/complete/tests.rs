use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

/// What is proposed behind a line, without a cluster.
async fn behind(line: &str) -> String {
    let words = words(line);
    let mut lookups = Lookups::new(Handle::current(), &words);
    lookups.options.kubeconfig = Some("/dev/null".into());
    spawn_blocking(move || proposals(&lookups, words))
        .await
        .unwrap()
}

#[tokio::test]
async fn verbs_have_their_descriptions() {
    let said = behind("rep").await;
    assert!(said.starts_with("replicas\t"), "{said}");
    assert!(said.ends_with(":4\n"), "{said}");
    let said = behind("").await;
    assert!(
        said.contains("\nget\tShow jobs") && !said.contains("__"),
        "{said}"
    );
    assert!(!said.contains("--"), "{said}");
}

#[tokio::test]
async fn flags_come_only_when_they_are_typed() {
    let said = behind("get --all").await;
    assert_eq!(said, "--all-namespaces\tJobs of all namespaces\n:4\n");
    let said = behind("get --as").await;
    assert!(said.contains("--as-group\tGroup to impersonate"), "{said}");
}

#[tokio::test]
async fn values_that_are_known_come_with_their_meaning() {
    for line in ["get -o ", "get --output=", "get -n x -o "] {
        let said = behind(line).await;
        assert!(
            said.contains("wide\tA table with more columns\n"),
            "{line}: {said}"
        );
        assert!(said.ends_with(":4\n"), "{said}");
    }
    assert_eq!(behind("get --output=ya").await, "yaml\tYAML\n:4\n");
    let said = behind("create x -o ").await;
    assert!(said.contains("yaml\t") && !said.contains("wide"), "{said}");
}

#[tokio::test]
async fn files_are_left_to_the_shell() {
    for line in ["create -f ", "create --filename=", "get --kubeconfig "] {
        assert_eq!(behind(line).await, ":0\n", "{line}");
    }
}

#[tokio::test]
async fn without_a_cluster_it_is_silent() {
    assert_eq!(behind("get ").await, ":4\n");
    assert_eq!(behind("no-such-verb ").await.lines().last(), Some(":4"));
}

#[tokio::test]
async fn what_is_waited_for_and_told_of_is_proposed() {
    let said = behind("wait x --for=phase=Su").await;
    assert_eq!(said, "phase=Succeeded\nphase=Suspended\n:4\n");
    for proposed in ["create\n", "delete\n", "condition=\n", "jsonpath=\n"] {
        let said = behind("wait x --for ").await;
        assert!(said.contains(proposed), "{said}");
    }
    assert_eq!(behind("events --types ").await, "Normal\nWarning\n:4\n");
}

#[test]
fn what_bash_took_apart_is_joined() {
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
        let (words, stays) = joined(words(typed));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!((words.join(" ").as_str(), stays.as_str()), (whole, before));
    }
}

#[test]
fn the_cluster_is_taken_from_what_stands_before() {
    let options = options(&words("get -n team --context=c --bogus -w jo"));
    assert_eq!(options.namespace.as_deref(), Some("team"));
    assert_eq!(options.context.as_deref(), Some("c"));
}
