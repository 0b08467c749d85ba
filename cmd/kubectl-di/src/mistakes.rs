//! What was typed wrongly, told as kubectl tells it.

use std::error::Error as _;

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// The lines for a mistake; `called` is the command that was meant, as `kubectl di get`.
pub fn told(error: &Error, called: &str) -> String {
    let see = format!("See '{called} --help' for usage.\n");
    let invalid = one(error, ContextKind::InvalidArg);
    let lines = match (error.kind(), invalid) {
        (ErrorKind::UnknownArgument, Some(flag)) => unknown(flag) + "\n" + &see,
        (ErrorKind::ArgumentConflict, Some(arg)) => {
            let mut all = vec![arg];
            all.extend(several(error, ContextKind::PriorArg));
            match kubectls(&all) {
                Some(line) => format!("{line}\n"),
                None => format!("{} cannot be used together\n{see}", listed(&all)),
            }
        }
        (ErrorKind::MissingRequiredArgument, _) => {
            let missing = several(error, ContextKind::InvalidArg);
            format!("must specify {}\n{see}", listed(&missing))
        }
        (ErrorKind::ValueValidation, Some(arg)) if bare(arg) == "--output" => {
            let why = error.source().map(ToString::to_string);
            why.unwrap_or_default() + "\n"
        }
        (ErrorKind::InvalidSubcommand, _) => {
            let verb = one(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let like = several(error, ContextKind::SuggestedSubcommand);
            let meant = if like.is_empty() {
                String::new()
            } else {
                format!("\nDid you mean this?\n\t{}\n\n", like.join("\n\t"))
            };
            format!("unknown command {verb:?} for {called:?}\n{meant}{see}")
        }
        _ => {
            let all = error.to_string();
            let lines = all.trim_end().trim_end_matches(CLAPS).trim_end();
            return format!("{lines}\n{see}");
        }
    };
    format!("error: {lines}")
}

/// The last line of what clap tells.
const CLAPS: &str = "For more information, try '--help'.";

fn unknown(arg: &str) -> String {
    match (arg.strip_prefix("--"), arg.strip_prefix('-')) {
        (Some(_), _) => format!("unknown flag: {arg}"),
        (None, Some(letters)) => {
            let first = letters.chars().next().unwrap_or('-');
            format!("unknown shorthand flag: '{first}' in {arg}")
        }
        (None, None) => format!("unexpected argument {arg:?}"),
    }
}

/// Where kubectl has words of its own for what does not fit together.
fn kubectls(all: &[&str]) -> Option<&'static str> {
    let is_name = |arg: &&&str| bare(arg) == "NAME";
    let (names, others): (Vec<_>, Vec<_>) = all.iter().partition(is_name);
    match others.first().filter(|_| !names.is_empty()) {
        Some(&&"--all-namespaces") => {
            Some("a resource cannot be retrieved by name across all namespaces")
        }
        Some(arg) if bare(arg) == "--selector" => {
            Some("name cannot be provided when a selector is specified")
        }
        _ => None,
    }
}

/// An argument without what clap says of its value: of `--since <TIME>` the flag, of `[NAME]...` the name.
fn bare(arg: &str) -> &str {
    let first = arg.split([' ', '=']).next().unwrap_or(arg);
    let first = first.trim_end_matches("...");
    let first = first.trim_matches(['<', '>']);
    let optional = first.strip_prefix('[').and_then(|f| f.strip_suffix(']'));
    optional.unwrap_or(first)
}

fn listed(all: &[&str]) -> String {
    // Of a group any will do: `<--collectors <N>|--learners <N>>`.
    let any = |arg: &&str| arg.split('|').map(bare).collect::<Vec<_>>().join(" or ");
    let all: Vec<_> = all.iter().map(any).collect();
    match all.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => all.concat(),
    }
}

fn one(error: &Error, what: ContextKind) -> Option<&str> {
    several(error, what).into_iter().next()
}

fn several(error: &Error, what: ContextKind) -> Vec<&str> {
    match error.get(what) {
        Some(ContextValue::String(text)) => vec![text],
        Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::args::{Cli, Misread};

    fn told(line: &str) -> String {
        let words = line.split(' ').map(OsString::from);
        match Cli::read(words).unwrap_err() {
            Misread::Asked(help) => help.to_string(),
            Misread::Mistake(told) => told,
        }
    }

    #[test]
    fn flags_that_are_not_there_are_told_as_kubectl_tells_them() {
        for (line, said) in [
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
            assert_eq!(told(line), said, "{line}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        for verb in ["get", "ls", "delete", "describe", "suspend", "events"] {
            for line in ["-A train", "train --all-namespaces"] {
                assert_eq!(
                    told(&format!("kubectl-di {verb} {line}")),
                    "error: a resource cannot be retrieved by name across all namespaces\n"
                );
            }
        }
        for (line, said) in [
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
            assert_eq!(told(&format!("kubectl-di {line}")), said, "{line}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
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
            let said = format!("error: must specify {missing}\n{see}\n");
            assert_eq!(told(&format!("kubectl-di {line}")), said, "{line}");
        }
    }

    #[test]
    fn forms_that_are_none_are_told_by_themselves() {
        assert_eq!(
            told("kubectl-di get -o custom-columns"),
            "error: custom-columns format specified but no custom columns given\n"
        );
    }

    #[test]
    fn verbs_that_are_meant_are_proposed() {
        let see = "See 'kubectl di --help' for usage.\n";
        assert_eq!(
            told("kubectl-di gett"),
            format!(
                "error: unknown command \"gett\" for \"kubectl di\"\n\nDid you mean this?\n\tget\n\n{see}"
            )
        );
        assert_eq!(
            told("kubectl-di train"),
            format!("error: unknown command \"train\" for \"kubectl di\"\n{see}")
        );
    }

    #[test]
    fn values_that_are_none_are_told_with_where_to_look() {
        let told = told("kubectl-di wait j --for=x");
        assert!(told.starts_with("error: invalid value 'x' for '--for"));
        assert!(
            told.ends_with("\nSee 'kubectl di wait --help' for usage.\n"),
            "{told}"
        );
        assert!(!told.contains("\n\n"), "{told}");
    }

    #[test]
    fn help_is_no_mistake() {
        assert!(!told("kubectl-di get -h").contains("error"));
    }
}
