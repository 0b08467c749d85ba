//! Shell completion, for kubectl and for the scripts that `completion` prints.
//!
//! kubectl runs `kubectl_complete-di` with the words after `kubectl di`. Errors are not printed,
//! because they would appear in the command line that the user types.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use clap::{Arg, Args, Command, FromArgMatches, builder::StyledStr};
use clap_complete::{
    CompletionCandidate,
    engine::{ArgValueCandidates, ArgValueCompleter},
    env::CompleteEnv,
};
use di_api::{Phase, names};
use di_client::{
    Cluster, ConnectOptions, KubeconfigNames, container_names, group_names, job_names,
    namespace_names, replica_names,
};
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

use crate::{args, cmdline::normalize_args, globals::Globals, names::strip_kind_prefix};

/// The environment variable that the scripts of `completion` set.
pub const COMPLETE_ENV: &str = "KUBECTL_DI_COMPLETE";
/// The name of the program that kubectl runs.
const PROGRAM: &str = "kubectl_complete-di";
/// The command of the plugin that does the same.
const VERB: &str = "__complete";
/// The default timeout of a lookup in the cluster; `--request-timeout` overrides it.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1500);

/// The directive for kubectl not to complete file names (cobra's ShellCompDirectiveNoFileComp).
const NO_FILES: u8 = 4;
/// The directive for kubectl to complete file names too (cobra's ShellCompDirectiveDefault).
const FILES: u8 = 0;

/// A completion request and the words typed so far.
pub enum CompletionRequest {
    /// From kubectl; the last word is incomplete.
    Kubectl(Vec<OsString>),
    /// From the bash script; the last word is incomplete.
    Bash(Vec<OsString>),
    /// From another script of `completion`.
    Script,
}

/// The completion request of this call, if it is one.
pub fn requested_completion() -> Option<CompletionRequest> {
    if let Some(shell) = std::env::var_os(COMPLETE_ENV) {
        return Some(if shell == "bash" {
            CompletionRequest::Bash(words_from_script())
        } else {
            CompletionRequest::Script
        });
    }
    let mut words = std::env::args_os();
    let program = words.next()?;
    if Path::new(&program).file_stem() == Some(OsStr::new(PROGRAM)) {
        return Some(CompletionRequest::Kubectl(words.collect()));
    }
    let first = words.next()?;
    (first == VERB).then(|| CompletionRequest::Kubectl(words.collect()))
}

/// The words that a script passes, without the name of the program.
fn words_from_script() -> Vec<OsString> {
    let words = std::env::args_os().skip_while(|word| word != "--");
    words.skip(2).collect()
}

/// Prints the completions.
///
/// clap_complete is synchronous and lookups wait for the network, so it runs on another thread.
pub async fn run(request: CompletionRequest) -> ExitCode {
    let handle = Handle::current();
    let completed = spawn_blocking(move || match request {
        CompletionRequest::Script => {
            let lookups = Lookups::new(handle, &words_from_script());
            CompleteEnv::with_factory(|| lookups.add_completers(args::build_command()))
                .var(COMPLETE_ENV)
                .complete();
            String::new()
        }
        CompletionRequest::Bash(words) => {
            let (words, typed) = join_bash_words(words);
            let lookups = Lookups::new(handle, &words);
            let found = completion_candidates(&lookups, words).into_iter();
            // bash keeps the part up to the last `=` itself.
            let found = found.map(|(value, _)| match value.strip_prefix(&typed) {
                Some(rest) => format!("{rest}\n"),
                None => format!("{value}\n"),
            });
            found.collect()
        }
        CompletionRequest::Kubectl(mut words) => {
            if words.is_empty() {
                words.push(OsString::new());
            }
            kubectl_completions(&Lookups::new(handle, &words), words)
        }
    });
    let text = completed.await.unwrap_or_default();
    io::stdout().write_all(text.as_bytes()).ok();
    ExitCode::SUCCESS
}

/// Joins the words that bash splits at `=` and `:`.
///
/// Also returns the part of the last word that bash keeps itself.
fn join_bash_words(words: Vec<OsString>) -> (Vec<OsString>, String) {
    let mut all: Vec<OsString> = Vec::new();
    let (mut before, mut continues) = (String::new(), false);
    for word in words {
        let text = word.to_string_lossy();
        let parts = !text.is_empty() && text.chars().all(|c| matches!(c, '=' | ':'));
        match all.last_mut() {
            Some(last) if parts || continues => {
                before = last.to_string_lossy().into_owned();
                last.push(&word);
                if parts {
                    before.push_str(&text);
                }
            }
            _ => {
                before.clear();
                all.push(word.clone());
            }
        }
        continues = parts;
    }
    if all.is_empty() {
        all.push(OsString::new());
    }
    (all, before)
}

/// The output for kubectl: a line per value with a tab and its description, then the directive.
fn kubectl_completions(lookups: &Lookups, words: Vec<OsString>) -> String {
    let typed = last_word(&words);
    let mut text = String::new();
    for (value, help) in completion_candidates(lookups, words) {
        // For --flag=value, the shell expects only the value.
        let value = match typed.split_once('=') {
            Some((flag, _)) if typed.starts_with('-') => {
                value.strip_prefix(&format!("{flag}=")).unwrap_or(&value)
            }
            _ => &value,
        };
        text.push_str(value);
        if let Some(help) = help {
            text.push('\t');
            text.push_str(help.lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    let directive = if lookups.files.load(Relaxed) {
        FILES
    } else {
        NO_FILES
    };
    format!("{text}:{directive}\n")
}

/// The values and descriptions for the last word; flags only if it starts with a dash.
fn completion_candidates(lookups: &Lookups, words: Vec<OsString>) -> Vec<(String, Option<String>)> {
    let typed = last_word(&words);
    let mut all = vec![OsString::from("kubectl-di")];
    all.extend(words);
    let at = all.len() - 1;
    let mut command = lookups.add_completers(args::build_command());
    let found = clap_complete::engine::complete(&mut command, all, at, None);
    let found = found.unwrap_or_default().into_iter();
    let found = found
        .filter(|candidate| !candidate.is_hide_set())
        .map(|candidate| {
            let value = candidate.get_value().to_string_lossy().into_owned();
            (value, candidate.get_help().map(ToString::to_string))
        });
    let is_wanted = |value: &str| !value.starts_with('-') || typed.starts_with('-');
    found.filter(|(value, _)| is_wanted(value)).collect()
}

fn last_word(words: &[OsString]) -> String {
    let typed = words.last().map(|word| word.to_string_lossy().into_owned());
    typed.unwrap_or_default()
}

/// Looks up values in the cluster and the kubeconfig.
#[derive(Clone)]
struct Lookups {
    handle: Handle,
    options: ConnectOptions,
    words: Vec<String>,
    /// Whether the value is a file name, which the shell completes itself.
    files: Arc<AtomicBool>,
}

impl Lookups {
    fn new(handle: Handle, words: &[OsString]) -> Self {
        Self {
            handle,
            options: connect_options(words),
            words: words
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            files: Arc::default(),
        }
    }

    /// Adds completers to the values of a command and its subcommands.
    fn add_completers(&self, command: Command) -> Command {
        let verb = command.get_name().to_owned();
        command
            .mut_args(|arg| self.add_completer(arg, &verb))
            .mut_subcommands(|command| self.add_completers(command))
    }

    fn add_completer(&self, arg: Arg, verb: &str) -> Arg {
        let makes = verb == "create";
        let value = arg.get_value_names().and_then(|names| names.first());
        let value = value.map(ToString::to_string).unwrap_or_default();
        let lookups = self.clone();
        match (arg.get_long().unwrap_or_default(), value.as_str()) {
            ("namespace", _) => {
                arg.add(self.complete_from_cluster(async |cluster| namespace_names(&cluster).await))
            }
            ("context", _) => arg.add(self.complete_from_kubeconfig(|choices| choices.contexts)),
            ("cluster", _) => arg.add(self.complete_from_kubeconfig(|choices| choices.clusters)),
            ("user", _) => arg.add(self.complete_from_kubeconfig(|choices| choices.users)),
            (_, "FILE" | "DIR") => arg.add(ArgValueCompleter::new(move |_: &OsStr| {
                lookups.files.store(true, Relaxed);
                Vec::new()
            })),
            ("pod" | "replica", _) | ("", "REPLICA" | "REPLICAS" | "POD" | "PODS") => {
                let words = self.words.clone();
                // These commands do not support the coordinator.
                let ends = matches!(verb, "delete" | "restart");
                arg.add(self.complete_from_cluster(async move |cluster| {
                    let mut all = replica_names(&cluster).await?;
                    all.retain(|(replica, job)| {
                        !(ends && *replica == names::coordinator_name(job))
                    });
                    let named =
                        |job: &String| words.iter().any(|word| strip_kind_prefix(word) == job);
                    let any = all.iter().any(|(_, job)| named(job));
                    let all = all.into_iter().filter(|(_, job)| !any || named(job));
                    Ok(all.map(|(replica, _)| replica).collect())
                }))
            }
            ("output", _) if arg.get_possible_values().is_empty() => {
                let help = arg.get_help().map(ToString::to_string);
                arg.add(ArgValueCandidates::new(move || {
                    format_candidates(help.as_deref())
                }))
            }
            ("for", _) => arg.add(ArgValueCandidates::new(wait_candidates)),
            ("types", _) => arg.add(ArgValueCandidates::new(|| {
                ["Normal", "Warning"].map(CompletionCandidate::new).into()
            })),
            ("", "NAME" | "NAMES" | "JOB" | "JOBS") if !makes => {
                let kind = self.typed_kind();
                arg.add(self.complete_from_cluster(async move |cluster| {
                    let jobs = job_names(&cluster).await?.into_iter();
                    Ok(jobs.map(|job| format!("{kind}{job}")).collect())
                }))
            }
            ("", "NAME[/REPLICA]") => {
                let kind = self.typed_kind();
                let typed = self.words.last().cloned().unwrap_or_default();
                arg.add(self.complete_from_cluster(async move |cluster| {
                    let typed = typed.strip_prefix(&kind).unwrap_or(&typed);
                    let Some((job, _)) = typed.split_once('/') else {
                        let jobs = job_names(&cluster).await?.into_iter();
                        return Ok(jobs.map(|job| format!("{kind}{job}")).collect());
                    };
                    let mut all = replica_names(&cluster).await?;
                    all.retain(|(_, of)| of == job);
                    let all = all.into_iter();
                    Ok(all
                        .map(|(replica, job)| format!("{kind}{job}/{replica}"))
                        .collect())
                }))
            }
            ("group", _) if !makes => arg.add(
                self.complete_from_job(async |cluster, job| group_names(&cluster, &job).await),
            ),
            ("container", _) => arg.add(
                self.complete_from_job(async |cluster, job| container_names(&cluster, &job).await),
            ),
            _ => arg,
        }
    }

    /// The kind before the name in the last word, such as `dijob/`.
    fn typed_kind(&self) -> String {
        let typed = self.words.last().map_or("", String::as_str);
        typed[..typed.len() - strip_kind_prefix(typed).len()].to_owned()
    }

    /// Completes values that belong to the job in the words.
    fn complete_from_job<F>(&self, lookup: F) -> ArgValueCandidates
    where
        F: AsyncFn(Cluster, String) -> di_client::Result<Vec<String>>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let words = self.words.clone();
        self.complete_from_cluster(async move |cluster| {
            let jobs = job_names(&cluster).await?;
            let named = words.iter().find_map(|word| {
                let word = strip_kind_prefix(word);
                let job = word.split_once('/').map_or(word, |(job, _)| job);
                jobs.iter().find(|name| *name == job)
            });
            match named {
                Some(job) => lookup(cluster, job.clone()).await,
                None => Ok(Vec::new()),
            }
        })
    }

    /// Completes values from the cluster, except those in the words before.
    fn complete_from_cluster<F>(&self, lookup: F) -> ArgValueCandidates
    where
        F: AsyncFn(Cluster) -> di_client::Result<Vec<String>> + Clone + Send + Sync + 'static,
    {
        let lookups = self.clone();
        ArgValueCandidates::new(move || {
            let Some((_, before)) = lookups.words.split_last() else {
                return Vec::new();
            };
            let deadline = lookups.options.request_timeout.unwrap_or(LOOKUP_TIMEOUT);
            let result = lookups.handle.block_on(timeout(deadline, async {
                let cluster = Cluster::connect(&lookups.options, |_| {}).await?;
                lookup(cluster).await
            }));
            let found = result.ok().and_then(Result::ok).unwrap_or_default();
            let new = found.into_iter().filter(|name| !before.contains(name));
            new.map(CompletionCandidate::new).collect()
        })
    }

    fn complete_from_kubeconfig(
        &self,
        select: fn(KubeconfigNames) -> Vec<String>,
    ) -> ArgValueCandidates {
        let options = self.options.clone();
        ArgValueCandidates::new(move || {
            let choices = options.kubeconfig_names().unwrap_or_default();
            select(choices)
                .into_iter()
                .map(CompletionCandidate::new)
                .collect()
        })
    }
}

/// The output formats that the help of the flag names.
fn format_candidates(help: Option<&str>) -> Vec<CompletionCandidate> {
    let all = [
        ("wide", "A table with more columns"),
        ("json", "JSON"),
        ("yaml", "YAML"),
        ("name", "Kind and name"),
        ("jsonpath=", "The result of a JSONPath template"),
        (
            "jsonpath-as-json=",
            "The values that a JSONPath template selects, as JSON",
        ),
        ("custom-columns=", "A table with custom columns"),
    ];
    let candidate =
        |(form, meaning)| CompletionCandidate::new(form).help(Some(StyledStr::from(meaning)));
    let is_taken = |(form, _): &(&str, &str)| {
        help.is_some_and(|help| help.contains(form.trim_end_matches('=')))
    };
    all.into_iter().filter(is_taken).map(candidate).collect()
}

/// The conditions of `wait --for`.
fn wait_candidates() -> Vec<CompletionCandidate> {
    let whole = ["create", "delete", "condition=", "jsonpath="].map(str::to_owned);
    let phases = Phase::ALL.map(|phase| format!("phase={phase:?}"));
    let all = whole.into_iter().chain(phases);
    all.map(CompletionCandidate::new).collect()
}

/// The connection options in the incomplete words.
fn connect_options(words: &[OsString]) -> ConnectOptions {
    let before = words.split_last().map_or(&[][..], |(_, before)| before);
    let all = [OsString::from("kubectl-di")]
        .into_iter()
        .chain(before.iter().cloned());
    let all = normalize_args(&args::build_command(), all);
    let command = Globals::augment_args(Command::new("kubectl-di"))
        .ignore_errors(true)
        .disable_help_flag(true)
        .arg(Arg::new("others").num_args(0..).trailing_var_arg(false));
    let matches = command.try_get_matches_from(all);
    let globals = matches
        .ok()
        .and_then(|matches| Globals::from_arg_matches(&matches).ok());
    globals
        .map(|globals| globals.connect_options())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
