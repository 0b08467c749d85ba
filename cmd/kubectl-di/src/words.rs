//! Words as kubectl's users type them, in the form that clap takes: `--watch=false`, `-A=true`, `get dijobs x`, `help get`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, Id};

use crate::names::is_kind;

/// The words, of which the first is the program's name.
pub fn plain(root: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let read = Read::all(root, words);
    read.words.into_iter().map(|(word, _)| word).collect()
}

/// The command that is meant, as `kubectl di replicas add`.
pub fn called(root: &Command, words: impl IntoIterator<Item = OsString>) -> String {
    let read = Read::all(root, words);
    let verbs = read.path.iter().skip(1).map(|command| command.get_name());
    let all: Vec<_> = root.get_bin_name().into_iter().chain(verbs).collect();
    all.join(" ")
}

struct Read<'a> {
    /// The command that is meant, so far, behind those above it.
    path: Vec<&'a Command>,
    /// What is passed on, with the flag that it sets if that is a switch.
    words: Vec<(OsString, Option<&'a Id>)>,
    help: bool,
    /// Whether something stands there that is neither a flag nor a command.
    named: bool,
}

impl<'a> Read<'a> {
    fn all(root: &'a Command, words: impl IntoIterator<Item = OsString>) -> Self {
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
                    read.end();
                    read.words.push((word, None));
                    read.words.extend(words.map(|word| (word, None)));
                    return read;
                }
                Some(text) if text.starts_with("--") => read.long(text),
                Some(text) if text.starts_with('-') && text.len() > 1 => read.short(text),
                _ => read.positional(word),
            };
            if takes_next {
                read.words.extend(words.next().map(|word| (word, None)));
            }
        }
        read.end();
        read
    }

    /// Whether the next word is this flag's value.
    fn long(&mut self, text: &str) -> bool {
        let (name, value) = match text[2..].split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (&text[2..], None),
        };
        let found = self.flag(|arg| arg.get_long() == Some(name));
        match (found, value) {
            (Some(arg), value) if is_switch(arg) => {
                self.switch(arg, &format!("--{name}"), value, text);
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

    /// The same of short flags, of which several may stand in one word.
    fn short(&mut self, text: &str) -> bool {
        let mut rest = &text[1..];
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            let found = self.flag(|arg| arg.get_short() == Some(c));
            let Some(arg) = found.filter(|arg| is_switch(arg)) else {
                self.words.push((format!("-{rest}").into(), None));
                return after.is_empty() && found.is_some_and(needs_value);
            };
            let value = after.strip_prefix('=');
            self.switch(arg, &format!("-{c}"), value, &format!("-{rest}"));
            rest = if value.is_some() { "" } else { after };
        }
        false
    }

    /// As in kubectl, the last one counts.
    fn switch(&mut self, arg: &'a Arg, flag: &str, value: Option<&str>, whole: &str) {
        let id = arg.get_id();
        let on = value.map_or(Some(true), truth);
        match (on, arg.get_action()) {
            (Some(on), ArgAction::SetTrue) => {
                self.words.retain(|(_, set)| *set != Some(id));
                if on {
                    self.words.push((flag.into(), Some(id)));
                }
            }
            // One that is on unless told otherwise.
            (Some(on), _) => self.words.push((format!("{flag}={on}").into(), None)),
            (None, _) => self.words.push((whole.into(), None)),
        }
    }

    fn positional(&mut self, word: OsString) -> bool {
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
            // Nothing but jobs can be meant; one of such a name is dijob/NAME.
            if word.to_str().is_some_and(is_kind) && takes_names(command) {
                return false;
            }
        }
        self.words.push((word, None));
        false
    }

    /// Commands that do nothing by themselves tell what there is.
    fn end(&mut self) {
        let command = self.path[self.path.len() - 1];
        if self.help || (command.has_subcommands() && !self.named) {
            self.words.push(("--help".into(), None));
        }
    }

    fn flag(&self, is_it: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        let commands = self.path.iter().rev();
        let mut flags = commands.flat_map(|command| command.get_arguments());
        flags.find(|arg| is_it(arg))
    }
}

/// Whether a flag is on or off.
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

/// Whether a command is for any number of jobs.
fn takes_names(command: &Command) -> bool {
    let first = command.get_positionals().next();
    first.is_some_and(|first| matches!(first.get_action(), ArgAction::Append))
}

/// As Go reads them.
fn truth(text: &str) -> Option<bool> {
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
    use crate::args::command;

    fn read(line: &str) -> String {
        let words = line.split_whitespace().map(OsString::from);
        let words = plain(&command(), words).into_iter();
        let words: Vec<_> = words.map(|word| word.into_string().unwrap()).collect();
        words.join(" ")
    }

    /// Every command that does something, with the words that call it.
    fn verbs(command: &Command, called: &str, all: &mut Vec<(String, Command)>) {
        for verb in command.get_subcommands() {
            verbs(verb, &format!("{called} {}", verb.get_name()), all);
        }
        if !command.has_subcommands() {
            all.push((called.to_owned(), command.clone()));
        }
    }

    #[test]
    fn every_boolean_of_every_verb_takes_a_value() {
        let mut all = Vec::new();
        verbs(&command(), "di", &mut all);
        let root = command();
        let mut seen = 0;
        for (called, verb) in &all {
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
                        let got = read(&format!("{called} {flag}={value}"));
                        let wanted = match (always_on, on) {
                            (true, on) => format!("{called} {flag}={on}"),
                            (false, true) => format!("{called} {flag}"),
                            (false, false) => called.clone(),
                        };
                        assert_eq!(got, wanted);
                        // What else is wrong with it, there being no names, is nothing to do with the flag.
                        let parsed = command().try_get_matches_from(got.split(' '));
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
    fn the_last_of_several_counts() {
        assert_eq!(read("di get -w --watch=false"), "di get");
        assert_eq!(read("di get --watch=false -w"), "di get -w");
        assert_eq!(
            read("di exec x -it -i=false -- sh -i=false"),
            "di exec x -t -- sh -i=false"
        );
        assert_eq!(read("di get -Aojson --no-headers=0"), "di get -A -ojson");
        let get = |words: &str| {
            let matches = command().try_get_matches_from(words.split(' ')).unwrap();
            let (_, matches) = matches.subcommand().unwrap();
            matches.get_one::<String>("namespace").cloned().unwrap()
        };
        assert_eq!(get("di -n a get -n b"), "b");
        assert_eq!(get("di get -n a -n b"), "b");
        assert_eq!(get("di get -n a --namespace=b -w -w"), "b");
    }

    #[test]
    fn what_is_no_boolean_stays() {
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
            assert_eq!(read(line), line);
        }
    }

    #[test]
    fn the_kind_may_stand_before_names() {
        assert_eq!(read("di get dijobs"), "di get");
        assert_eq!(read("di get -w dijob x"), "di get -w x");
        assert_eq!(
            read("di delete dijobs.diengine.opendilab.org x dijob"),
            "di delete x dijob"
        );
        assert_eq!(read("di get dijob/dijob"), "di get dijob/dijob");
        assert_eq!(read("di create dijob"), "di create dijob");
        assert_eq!(read("di logs dijob"), "di logs dijob");
    }

    #[test]
    fn help_is_a_verb_and_what_stands_for_nothing() {
        assert_eq!(read("di"), "di --help");
        assert_eq!(read("di -n x"), "di -n x --help");
        assert_eq!(read("di replicas"), "di replicas --help");
        assert_eq!(read("di help"), "di --help");
        assert_eq!(read("di help replicas add"), "di replicas add --help");
        assert_eq!(read("di nonsense"), "di nonsense");
        assert_eq!(read("di get help"), "di get help");
    }
}
