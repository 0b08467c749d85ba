//! Formats clap errors as kubectl formats its own.

use std::error::Error as _;

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// The lines for an error; `command` is the path of the command, such as `kubectl di get`.
pub fn format_error(error: &Error, command: &str) -> String {
    let see = format!("See '{command} --help' for usage.\n");
    let invalid = context_value(error, ContextKind::InvalidArg);
    let lines = match (error.kind(), invalid) {
        (ErrorKind::UnknownArgument, Some(flag)) => unknown_argument(flag) + "\n" + &see,
        (ErrorKind::ArgumentConflict, Some(arg)) => {
            let mut all = vec![arg];
            all.extend(context_values(error, ContextKind::PriorArg));
            match kubectl_message(&all) {
                Some(line) => format!("{line}\n"),
                None => format!("{} cannot be used together\n{see}", joined_names(&all)),
            }
        }
        (ErrorKind::MissingRequiredArgument, _) => {
            let missing = context_values(error, ContextKind::InvalidArg);
            format!("must specify {}\n{see}", joined_names(&missing))
        }
        (ErrorKind::ValueValidation, Some(arg)) if argument_name(arg) == "--output" => {
            let why = error.source().map(ToString::to_string);
            why.unwrap_or_default() + "\n"
        }
        (ErrorKind::InvalidSubcommand, _) => {
            let verb = context_value(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let like = context_values(error, ContextKind::SuggestedSubcommand);
            let suggestion = if like.is_empty() {
                String::new()
            } else {
                format!("\nDid you mean this?\n\t{}\n\n", like.join("\n\t"))
            };
            format!("unknown command {verb:?} for {command:?}\n{suggestion}{see}")
        }
        _ => {
            let all = error.to_string();
            let lines = all.trim_end().trim_end_matches(CLAP_HINT).trim_end();
            return format!("{lines}\n{see}");
        }
    };
    format!("error: {lines}")
}

/// The last line of clap's errors.
const CLAP_HINT: &str = "For more information, try '--help'.";

fn unknown_argument(arg: &str) -> String {
    match (arg.strip_prefix("--"), arg.strip_prefix('-')) {
        (Some(_), _) => format!("unknown flag: {arg}"),
        (None, Some(letters)) => {
            let first = letters.chars().next().unwrap_or('-');
            format!("unknown shorthand flag: '{first}' in {arg}")
        }
        (None, None) => format!("unexpected argument {arg:?}"),
    }
}

/// The message of kubectl for a conflict of arguments, if it has one.
fn kubectl_message(all: &[&str]) -> Option<&'static str> {
    let is_name = |arg: &&&str| argument_name(arg) == "NAME";
    let (names, others): (Vec<_>, Vec<_>) = all.iter().partition(is_name);
    match others.first().filter(|_| !names.is_empty()) {
        Some(&&"--all-namespaces") => {
            Some("a resource cannot be retrieved by name across all namespaces")
        }
        Some(arg) if argument_name(arg) == "--selector" => {
            Some("name cannot be provided when a selector is specified")
        }
        _ => None,
    }
}

/// The name of an argument: `--since` for `--since <TIME>`, `NAME` for `[NAME]...`.
fn argument_name(arg: &str) -> &str {
    let first = arg.split([' ', '=']).next().unwrap_or(arg);
    let first = first.trim_end_matches("...");
    let first = first.trim_matches(['<', '>']);
    let optional = first.strip_prefix('[').and_then(|f| f.strip_suffix(']'));
    optional.unwrap_or(first)
}

fn joined_names(all: &[&str]) -> String {
    // A group lists alternatives: `<--collectors <N>|--learners <N>>`.
    let any = |arg: &&str| {
        arg.split('|')
            .map(argument_name)
            .collect::<Vec<_>>()
            .join(" or ")
    };
    let all: Vec<_> = all.iter().map(any).collect();
    match all.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => all.concat(),
    }
}

fn context_value(error: &Error, kind: ContextKind) -> Option<&str> {
    context_values(error, kind).into_iter().next()
}

fn context_values(error: &Error, kind: ContextKind) -> Vec<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text],
        Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::args::{Cli, ParseError};

    fn error_text(line: &str) -> String {
        let words = line.split(' ').map(OsString::from);
        match Cli::parse_args(words).unwrap_err() {
            ParseError::Help(help) => help.to_string(),
            ParseError::Usage(message) => message,
        }
    }

    #[test]
    fn unknown_flags_have_the_message_of_kubectl() {
        for (line, message) in [
            (
                "kubectl-di get --bogus",
                "error: unknown flag: --bogus\nSee 'kubectl di get --help' for usage.\n",
            ),
            (
                "kubectl-di get --bogus=x",
                "error: unknown flag: --bogus\nSee 'kubectl di get --help' for usage.\n",
            ),
            (
                "kubectl-di -n get replicas add -Q",
                "error: unknown shorthand flag: 'Q' in -Q\nSee 'kubectl di replicas add --help' for usage.\n",
            ),
            (
                "kubectl-di --bogus",
                "error: unknown flag: --bogus\nSee 'kubectl di --help' for usage.\n",
            ),
            (
                "kubectl-di events a b",
                "error: unexpected argument \"b\"\nSee 'kubectl di events --help' for usage.\n",
            ),
        ] {
            assert_eq!(error_text(line), message, "{line}");
        }
    }

    #[test]
    fn conflicting_arguments_are_named() {
        for verb in ["get", "ls", "delete", "describe", "suspend", "events"] {
            for line in ["-A train", "train --all-namespaces"] {
                assert_eq!(
                    error_text(&format!("kubectl-di {verb} {line}")),
                    "error: a resource cannot be retrieved by name across all namespaces\n"
                );
            }
        }
        for (line, message) in [
            (
                "get x -l a=b",
                "error: name cannot be provided when a selector is specified\n",
            ),
            (
                "logs x --since 1m --since-time 2026-01-01T00:00:00Z",
                "error: --since and --since-time cannot be used together\nSee 'kubectl di logs --help' for usage.\n",
            ),
            (
                "replicas delete x y --collectors 1 --group g",
                "error: POD, --collectors and --group cannot be used together\nSee 'kubectl di replicas delete --help' for usage.\n",
            ),
        ] {
            assert_eq!(error_text(&format!("kubectl-di {line}")), message, "{line}");
        }
    }

    #[test]
    fn missing_arguments_are_named() {
        for (line, missing, verb) in [
            ("pause", "NAME", "pause"),
            ("exec x", "COMMAND", "exec"),
            ("wait", "--for", "wait"),
            ("validate", "--filename", "validate"),
            ("exec", "NAME[/REPLICA] and COMMAND", "exec"),
            (
                "replicas set x",
                "--collectors or --learners",
                "replicas set",
            ),
        ] {
            let see = format!("See 'kubectl di {verb} --help' for usage.");
            let message = format!("error: must specify {missing}\n{see}\n");
            assert_eq!(error_text(&format!("kubectl-di {line}")), message, "{line}");
        }
    }

    #[test]
    fn invalid_output_format_has_its_own_message() {
        assert_eq!(
            error_text("kubectl-di get -o custom-columns"),
            "error: custom-columns format specified but no custom columns given\n"
        );
    }

    #[test]
    fn unknown_command_suggests_a_similar_one() {
        let see = "See 'kubectl di --help' for usage.\n";
        assert_eq!(
            error_text("kubectl-di gett"),
            format!(
                "error: unknown command \"gett\" for \"kubectl di\"\n\nDid you mean this?\n\tget\n\n{see}"
            )
        );
        assert_eq!(
            error_text("kubectl-di train"),
            format!("error: unknown command \"train\" for \"kubectl di\"\n{see}")
        );
    }

    #[test]
    fn invalid_value_error_ends_with_usage_hint() {
        let text = error_text("kubectl-di wait j --for=x");
        assert!(text.starts_with("error: invalid value 'x' for '--for"));
        assert!(
            text.ends_with("\nSee 'kubectl di wait --help' for usage.\n"),
            "{text}"
        );
        assert!(!text.contains("\n\n"), "{text}");
    }

    #[test]
    fn help_is_not_an_error() {
        assert!(!error_text("kubectl-di get -h").starts_with("error"));
    }
}
