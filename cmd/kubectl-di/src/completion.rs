//! Shell completion, for kubectl and for the scripts that `completion` prints.
//!
//! kubectl runs `kubectl_complete-di` with the words after `kubectl di`. Errors are not printed,
//! because they would appear in the command line that the user types.

pub mod script;

use std::{
    ffi::OsString,
    io::{self, Write},
    time::Duration,
};

use clap::{Arg, Args, Command, FromArgMatches};
use clap_complete::{
    CompletionCandidate,
    engine::{ArgValueCandidates, complete},
    env::CompleteEnv,
};
use di_client::{Cluster, ConnectOptions, job_names};
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

use crate::flags::globals::Globals;

use script::COMPLETE_ENV;

/// The command that `kubectl_complete-di` runs.
const VERB: &str = "__complete";
/// The default timeout of a lookup in the cluster; `--request-timeout` overrides it.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1500);
/// The directive for kubectl not to complete file names (cobra's ShellCompDirectiveNoFileComp).
const NO_FILES: u8 = 4;

/// Prints completions if this call asks for them; returns whether it does.
///
/// clap_complete is synchronous and lookups wait for the network, so it runs on another thread.
pub async fn complete_if_requested(command: Command) -> bool {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let for_kubectl = words.get(1).is_some_and(|word| word == VERB);
    if for_kubectl {
        words.remove(1);
    } else if std::env::var_os(COMPLETE_ENV).is_some() {
        // A script passes the words after its own call.
        let start = words.iter().position(|word| word == "--");
        words.drain(..start.map_or(0, |at| at + 1));
    } else {
        return false;
    }
    let handle = Handle::current();
    let completed = spawn_blocking(move || {
        let command = add_job_names(command, &words, &handle);
        if for_kubectl {
            kubectl_completions(command, words)
        } else {
            let complete = CompleteEnv::with_factory(|| command.clone());
            complete.var(COMPLETE_ENV).complete();
            String::new()
        }
    });
    let text = completed.await.unwrap_or_default();
    io::stdout().write_all(text.as_bytes()).ok();
    true
}

/// Adds the names of jobs as candidates to the arguments that are a job.
fn add_job_names(command: Command, words: &[OsString], handle: &Handle) -> Command {
    let creates = command.get_name() == "create";
    let add = |arg: Arg| {
        let value = arg.get_value_names().and_then(|names| names.first());
        let is_job = value.is_some_and(|name| matches!(&**name, "NAME" | "JOB" | "NAME[/REPLICA]"));
        if !is_job || !arg.is_positional() || creates {
            return arg;
        }
        let (words, handle) = (words.to_vec(), handle.clone());
        arg.add(ArgValueCandidates::new(move || {
            job_candidates(&words, &handle)
        }))
    };
    command
        .mut_args(add)
        .mut_subcommands(|command| add_job_names(command, words, handle))
}

/// The jobs in the namespace of the line, except those that it names already.
fn job_candidates(words: &[OsString], handle: &Handle) -> Vec<CompletionCandidate> {
    let mut options = connect_options(words);
    // The shell reads the terminal.
    options.stdin_in_use = true;
    let deadline = options.request_timeout.unwrap_or(LOOKUP_TIMEOUT);
    let lookup = async {
        let cluster = Cluster::connect(&options, |_| {}).await?;
        job_names(&cluster).await
    };
    let result = handle.block_on(timeout(deadline, lookup));
    let mut names = result.ok().and_then(Result::ok).unwrap_or_default();
    let before = words.split_last().map_or(words, |(_, before)| before);
    names.retain(|name| !before.iter().any(|word| word == &**name));
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The connection options in the incomplete line.
fn connect_options(words: &[OsString]) -> ConnectOptions {
    let before = words.split_last().map_or(words, |(_, before)| before);
    let command = Globals::augment_args(Command::new("kubectl-di"))
        .ignore_errors(true)
        .disable_help_flag(true)
        .arg(Arg::new("others").num_args(0..));
    let matches = command.try_get_matches_from(before).ok();
    let globals = matches.and_then(|matches| Globals::from_arg_matches(&matches).ok());
    globals.map_or_else(ConnectOptions::default, |globals| globals.connect_options())
}

/// The output for kubectl: a line per value with a tab and its description, then the directive.
fn kubectl_completions(mut command: Command, mut words: Vec<OsString>) -> String {
    if words.len() < 2 {
        words.push(OsString::new());
    }
    let last = words.len() - 1;
    let typed = words[last].to_string_lossy().into_owned();
    let found = complete(&mut command, words, last, None).unwrap_or_default();
    let mut text = String::new();
    for candidate in found.iter().filter(|candidate| !candidate.is_hide_set()) {
        let value = candidate.get_value().to_string_lossy();
        // As in kubectl, flags are proposed only after a dash.
        if value.starts_with('-') && !typed.starts_with('-') {
            continue;
        }
        // For --flag=value, the shell expects only the value.
        let flag = typed.split_once('=').filter(|_| typed.starts_with('-'));
        let flag = flag.map_or_else(String::new, |(flag, _)| format!("{flag}="));
        text.push_str(value.strip_prefix(&flag).unwrap_or(&value));
        if let Some(help) = candidate.get_help().map(ToString::to_string) {
            text.push('\t');
            text.push_str(help.lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    format!("{text}:{NO_FILES}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// The completions of a line without a cluster.
    async fn completions_of(line: &str) -> String {
        let words = to_words(&format!("kubectl-di --kubeconfig=/dev/null {line}"));
        let handle = Handle::current();
        spawn_blocking(move || {
            let command = crate::cli::build_command();
            kubectl_completions(add_job_names(command, &words, &handle), words)
        })
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
            text.contains("get\tDisplay one or many jobs") && !text.contains("__"),
            "{text}"
        );
        assert!(!text.contains("--"), "{text}");
    }

    #[tokio::test]
    async fn flags_and_their_values_are_completed() {
        let text = completions_of("get --all").await;
        assert_eq!(
            text,
            "--all-namespaces\tIf present, list the requested jobs across all namespaces\n:4\n"
        );
        assert_eq!(completions_of("get --output=ya").await, "yaml\tYAML\n:4\n");
        let text = completions_of("create x -o ").await;
        assert!(text.contains("yaml\t") && !text.contains("wide"), "{text}");
    }

    #[tokio::test]
    async fn unreachable_cluster_gives_no_completions_or_errors() {
        assert_eq!(completions_of("get ").await, ":4\n");
        assert_eq!(
            completions_of("no-such-verb ").await.lines().last(),
            Some(":4")
        );
    }

    #[test]
    fn cluster_flags_before_the_word_are_used() {
        let options = connect_options(&to_words(
            "kubectl-di get -n team --context=c --bogus -w jo",
        ));
        assert_eq!(options.namespace.as_deref(), Some("team"));
        assert_eq!(options.context.as_deref(), Some("c"));
    }
}
