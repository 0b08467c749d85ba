use std::io::IsTerminal;

use crossterm::style::Stylize;

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The object is healthy.
    Good,
    /// The object is in transition, or its state is unknown.
    Warning,
    /// The object needs attention.
    Error,
    /// A heading.
    Heading,
}

/// Whether output is coloured.
#[derive(Clone, Copy, Debug)]
pub struct Colours(bool);

impl Colours {
    /// Colours if stdout is a terminal and NO_COLOR is not set, see <https://no-color.org>.
    pub fn for_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !dumb)
    }

    /// No colours.
    pub fn none() -> Self {
        Self(false)
    }

    /// Colours a text by its tone.
    pub fn paint(self, text: &str, tone: Option<Tone>) -> String {
        if !self.0 {
            return text.to_owned();
        }
        match tone {
            None => text.to_owned(),
            Some(Tone::Good) => text.green().to_string(),
            Some(Tone::Warning) => text.yellow().to_string(),
            Some(Tone::Error) => text.red().to_string(),
            Some(Tone::Heading) => text.bold().to_string(),
        }
    }

    /// Colours a text with one of six colours, chosen by the number.
    pub fn paint_by_number(self, text: &str, number: usize) -> String {
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

/// The tone of a job phase or a pod status.
pub fn tone_for_status(status: &str) -> Option<Tone> {
    Some(match status {
        "Running" | "Succeeded" | "Completed" => Tone::Good,
        "Created" | "Pending" | "Planned" | "Queued" | "Suspended" | "Terminating" | "Removing"
        | "ContainerCreating" | "PodInitializing" | "Replaced" | "Unknown" => Tone::Warning,
        "<none>" => return None,
        init if init.starts_with("Init:") && init.contains('/') => Tone::Warning,
        _ => Tone::Error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_tone_or_colours_is_plain() {
        assert_eq!(Colours::none().paint("x", Some(Tone::Error)), "x");
        assert_eq!(Colours(true).paint("x", None), "x");
        assert_ne!(Colours(true).paint("x", Some(Tone::Error)), "x");
        assert_ne!(
            Colours(true).paint_by_number("x", 0),
            Colours(true).paint_by_number("x", 1)
        );
        assert_eq!(
            Colours(true).paint_by_number("x", 0),
            Colours(true).paint_by_number("x", 6)
        );
    }

    #[test]
    fn unknown_pod_status_has_the_error_tone() {
        assert_eq!(tone_for_status("ImagePullBackOff"), Some(Tone::Error));
        assert_eq!(tone_for_status("Init:0/1"), Some(Tone::Warning));
        assert_eq!(tone_for_status("Running"), Some(Tone::Good));
        // A phase without a tone of its own would look like an error.
        for phase in di_api::Phase::ALL.map(di_api::Phase::as_str) {
            let is_error = tone_for_status(phase) == Some(Tone::Error);
            assert_eq!(is_error, phase == "Failed", "{phase}");
        }
    }
}
