use std::io::IsTerminal;

use crossterm::style::Stylize;

/// What a text is to tell by its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// On its way, or over.
    Doubtful,
    /// Something is to be done.
    Bad,
    /// A heading.
    Bold,
}

/// Whether texts are coloured.
#[derive(Clone, Copy, Debug)]
pub struct Colours(bool);

impl Colours {
    /// On a terminal whose user did not ask for none, see <https://no-color.org>.
    pub fn of_stdout() -> Self {
        let unwanted = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(std::io::stdout().is_terminal() && !unwanted("NO_COLOR") && !dumb)
    }

    /// Without any.
    pub fn none() -> Self {
        Self(false)
    }

    /// The text in the colour of its tone.
    pub fn paint(self, text: &str, tone: Option<Tone>) -> String {
        if !self.0 {
            return text.to_owned();
        }
        match tone {
            None => text.to_owned(),
            Some(Tone::Good) => text.green().to_string(),
            Some(Tone::Doubtful) => text.yellow().to_string(),
            Some(Tone::Bad) => text.red().to_string(),
            Some(Tone::Bold) => text.bold().to_string(),
        }
    }

    /// The text in one of a few colours, the same for each number.
    pub fn vary(self, text: &str, number: usize) -> String {
        if !self.0 {
            return text.to_owned();
        }
        match number % 6 {
            0 => text.cyan(),
            1 => text.yellow(),
            2 => text.green(),
            3 => text.magenta(),
            4 => text.blue(),
            _ => text.red(),
        }
        .to_string()
    }
}

/// How a phase, or a pod's status, is meant.
pub fn tone_of(status: &str) -> Option<Tone> {
    Some(match status {
        "Running" | "Succeeded" | "Completed" => Tone::Good,
        "Created" | "Pending" | "Planned" | "Suspended" | "Terminating" | "Removing"
        | "ContainerCreating" | "PodInitializing" | "Replaced" | "Unknown" => Tone::Doubtful,
        "<none>" => return None,
        init if init.starts_with("Init:") && init.contains('/') => Tone::Doubtful,
        _ => Tone::Bad,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_is_coloured() {
        assert_eq!(Colours::none().paint("x", Some(Tone::Bad)), "x");
        assert_eq!(Colours(true).paint("x", None), "x");
        assert_ne!(Colours(true).paint("x", Some(Tone::Bad)), "x");
        assert_ne!(Colours(true).vary("x", 0), Colours(true).vary("x", 1));
        assert_eq!(Colours(true).vary("x", 0), Colours(true).vary("x", 6));
    }

    #[test]
    fn unknown_reasons_are_bad() {
        assert_eq!(tone_of("ImagePullBackOff"), Some(Tone::Bad));
        assert_eq!(tone_of("Init:0/1"), Some(Tone::Doubtful));
        assert_eq!(tone_of("Running"), Some(Tone::Good));
    }
}
