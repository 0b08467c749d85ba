//! Converts arguments that kubectl accepts and clap does not: `--watch=false`, `-A=true`,
//! `get dijobs x`, `help get`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, Id};

use crate::names::is_dijob_kind;

/// Converts the arguments; the first one is the name of the program.
pub fn normalize_args(root: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let read = Line::parse_words(root, words);
    read.words.into_iter().map(|(word, _)| word).collect()
}

/// The path of the command in the arguments, such as `kubectl di replicas add`.
pub fn command_path(root: &Command, words: impl IntoIterator<Item = OsString>) -> String {
    let read = Line::parse_words(root, words);
    let verbs = read.path.iter().skip(1).map(|command| command.get_name());
    let all: Vec<_> = root.get_bin_name().into_iter().chain(verbs).collect();
    all.join(" ")
}

struct Line<'a> {
    /// The path of the command that was found so far.
    path: Vec<&'a Command>,
    /// The converted arguments, with the ID of the flag if it is a boolean.
    words: Vec<(OsString, Option<&'a Id>)>,
    help: bool,
    /// Whether a positional argument other than a command was found.
    named: bool,
}

impl<'a> Line<'a> {
    fn parse_words(root: &'a Command, words: impl IntoIterator<Item = OsString>) -> Self {
        let mut words = words.into_iter();
        let mut read = Self {
            path: vec![root],
            words: Vec::new(),
            help: false,
            named: false,
        };
        read.words
            .extend(words.next().map(|program| (program, None)));
        while let Some(word) = words.next() {
            let takes_next = match word.to_str() {
                Some("--") => {
                    read.add_help();
                    read.words.push((word, None));
                    read.words.extend(words.map(|word| (word, None)));
                    return read;
                }
                Some(text) if text.starts_with("--") => read.parse_long(text),
                Some(text) if text.starts_with('-') && text.len() > 1 => read.parse_short(text),
                _ => read.parse_positional(word),
            };
            if takes_next {
                read.words.extend(words.next().map(|word| (word, None)));
            }
        }
        read.add_help();
        read
    }

    /// Parses a long flag; returns whether the next word is its value.
    fn parse_long(&mut self, text: &str) -> bool {
        let (name, value) = match text[2..].split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (&text[2..], None),
        };
        let found = self.find_flag(|arg| arg.get_long() == Some(name));
        match (found, value) {
            (Some(arg), value) if is_switch(arg) => {
                self.push_switch(arg, &format!("--{name}"), value, text);
                false
            }
            (Some(arg), None) => {
                self.words.push((text.into(), None));
                needs_value(arg)
            }
            _ => {
                self.words.push((text.into(), None));
                false
            }
        }
    }

    /// Parses short flags, which may be combined in one word.
    fn parse_short(&mut self, text: &str) -> bool {
        let mut rest = &text[1..];
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            let found = self.find_flag(|arg| arg.get_short() == Some(c));
            let Some(arg) = found.filter(|arg| is_switch(arg)) else {
                self.words.push((format!("-{rest}").into(), None));
                return after.is_empty() && found.is_some_and(needs_value);
            };
            let value = after.strip_prefix('=');
            self.push_switch(arg, &format!("-{c}"), value, &format!("-{rest}"));
            rest = if value.is_some() { "" } else { after };
        }
        false
    }

    /// Adds a boolean flag. As in kubectl, the last value is used.
    fn push_switch(&mut self, arg: &'a Arg, flag: &str, value: Option<&str>, whole: &str) {
        let id = arg.get_id();
        let on = value.map_or(Some(true), parse_bool);
        match (on, arg.get_action()) {
            (Some(on), ArgAction::SetTrue) => {
                self.words.retain(|(_, set)| *set != Some(id));
                if on {
                    self.words.push((flag.into(), Some(id)));
                }
            }
            // A flag that is true by default.
            (Some(on), _) => self.words.push((format!("{flag}={on}").into(), None)),
            (None, _) => self.words.push((whole.into(), None)),
        }
    }

    fn parse_positional(&mut self, word: OsString) -> bool {
        let command = self.path[self.path.len() - 1];
        if command.has_subcommands() && !self.named {
            if word == "help" && !self.help {
                self.help = true;
                return false;
            }
            match command.find_subcommand(&word) {
                Some(command) => self.path.push(command),
                None => self.named = true,
            }
        } else if !self.named {
            self.named = true;
            // The kind before the names; a job with such a name is written as dijob/NAME.
            if word.to_str().is_some_and(is_dijob_kind) && takes_names(command) {
                return false;
            }
        }
        self.words.push((word, None));
        false
    }

    /// Adds --help if it was asked for, or if a subcommand is missing.
    fn add_help(&mut self) {
        let command = self.path[self.path.len() - 1];
        if self.help || (command.has_subcommands() && !self.named) {
            self.words.push(("--help".into(), None));
        }
    }

    fn find_flag(&self, matches: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        let commands = self.path.iter().rev();
        let mut flags = commands.flat_map(|command| command.get_arguments());
        flags.find(|arg| matches(arg))
    }
}

/// Whether a flag is a boolean.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
        || matches!(arg.get_default_values(), [on] if on == "true")
}

fn needs_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
        && arg
            .get_num_args()
            .is_none_or(|number| number.min_values() > 0)
}

/// Whether a command takes any number of jobs.
fn takes_names(command: &Command) -> bool {
    let first = command.get_positionals().next();
    first.is_some_and(|first| matches!(first.get_action(), ArgAction::Append))
}

/// Parses a boolean as Go's strconv.ParseBool does.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::args::build_command;

    fn normalized(line: &str) -> String {
        let words = line.split_whitespace().map(OsString::from);
        let words = normalize_args(&build_command(), words).into_iter();
        let words: Vec<_> = words.map(|word| word.into_string().unwrap()).collect();
        words.join(" ")
    }

    /// Lists every command without subcommands, with its path.
    fn leaf_commands(command: &Command, path: &str, all: &mut Vec<(String, Command)>) {
        for verb in command.get_subcommands() {
            leaf_commands(verb, &format!("{path} {}", verb.get_name()), all);
        }
        if !command.has_subcommands() {
            all.push((path.to_owned(), command.clone()));
        }
    }

    #[test]
    fn boolean_flags_of_every_command_take_a_value() {
        let mut all = Vec::new();
        leaf_commands(&build_command(), "di", &mut all);
        let root = build_command();
        let mut seen = 0;
        for (path, verb) in &all {
            for arg in verb.get_arguments().chain(root.get_arguments()) {
                if !is_switch(arg) {
                    continue;
                }
                seen += 1;
                let always_on = !matches!(arg.get_action(), ArgAction::SetTrue);
                let long = arg.get_long().map(|long| format!("--{long}"));
                let short = arg.get_short().map(|short| format!("-{short}"));
                for flag in long.into_iter().chain(short) {
                    for (value, on) in [("true", true), ("1", true), ("false", false), ("F", false)]
                    {
                        let got = normalized(&format!("{path} {flag}={value}"));
                        let wanted = match (always_on, on) {
                            (true, on) => format!("{path} {flag}={on}"),
                            (false, true) => format!("{path} {flag}"),
                            (false, false) => path.clone(),
                        };
                        assert_eq!(got, wanted);
                        // Other errors, such as missing names, do not matter here.
                        let parsed = build_command().try_get_matches_from(got.split(' '));
                        let kind = parsed.err().map(|error| error.kind());
                        assert!(
                            !matches!(
                                kind,
                                Some(
                                    ErrorKind::TooManyValues
                                        | ErrorKind::UnknownArgument
                                        | ErrorKind::InvalidValue
                                        | ErrorKind::ArgumentConflict
                                )
                            ),
                            "{got}: {kind:?}"
                        );
                    }
                }
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn last_value_of_a_repeated_flag_is_used() {
        assert_eq!(normalized("di get -w --watch=false"), "di get");
        assert_eq!(normalized("di get --watch=false -w"), "di get -w");
        assert_eq!(
            normalized("di exec x -it -i=false -- sh -i=false"),
            "di exec x -t -- sh -i=false"
        );
        assert_eq!(
            normalized("di get -Aojson --no-headers=0"),
            "di get -A -ojson"
        );
        let get = |words: &str| {
            let matches = build_command()
                .try_get_matches_from(words.split(' '))
                .unwrap();
            let (_, matches) = matches.subcommand().unwrap();
            matches.get_one::<String>("namespace").cloned().unwrap()
        };
        assert_eq!(get("di -n a get -n b"), "b");
        assert_eq!(get("di get -n a -n b"), "b");
        assert_eq!(get("di get -n a --namespace=b -w -w"), "b");
    }

    #[test]
    fn non_boolean_flags_are_unchanged() {
        for line in [
            "di get -n --watch=false x",
            "di get --watch=maybe",
            "di -n get get -l a=true",
            "di logs x --tail -1",
            "di wait x --timeout -1s",
            "di suspend x --dry-run=server",
            "di delete x --wait=maybe",
            "di get --no-such=true",
        ] {
            assert_eq!(normalized(line), line);
        }
    }

    #[test]
    fn kind_before_names_is_removed() {
        assert_eq!(normalized("di get dijobs"), "di get");
        assert_eq!(normalized("di get -w dijob x"), "di get -w x");
        assert_eq!(
            normalized("di delete dijobs.diengine.opendilab.org x dijob"),
            "di delete x dijob"
        );
        assert_eq!(normalized("di get dijob/dijob"), "di get dijob/dijob");
        assert_eq!(normalized("di create dijob"), "di create dijob");
        assert_eq!(normalized("di logs dijob"), "di logs dijob");
    }

    #[test]
    fn help_is_a_command_and_the_default() {
        assert_eq!(normalized("di"), "di --help");
        assert_eq!(normalized("di -n x"), "di -n x --help");
        assert_eq!(normalized("di replicas"), "di replicas --help");
        assert_eq!(normalized("di help"), "di --help");
        assert_eq!(normalized("di help replicas add"), "di replicas add --help");
        assert_eq!(normalized("di nonsense"), "di nonsense");
        assert_eq!(normalized("di get help"), "di get help");
    }
}
