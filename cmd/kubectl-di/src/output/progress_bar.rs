mod line;

use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

use di_client::Progress;
use indicatif::{ProgressBar as Bar, ProgressDrawTarget, ProgressStyle};

use crate::signals::wait_for_signal;

use line::Line;

/// A progress line on stderr; hidden unless stderr is a terminal.
pub struct ProgressBar(Bar);

impl ProgressBar {
    /// A bar with the number of ready replicas.
    pub fn with_count(message: String) -> Self {
        let bar = Self::on_terminal(Some(0)).with_message(message);
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self::clear_on_signal(bar)
    }

    /// A spinner without a count.
    pub fn spinner(message: String) -> Self {
        let bar = Self::on_terminal(None).with_message(message);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::clear_on_signal(bar)
    }

    fn on_terminal(length: Option<u64>) -> Bar {
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::term_like(Box::new(Line::default()))
        } else {
            ProgressDrawTarget::hidden()
        };
        Bar::with_draw_target(length, target)
    }

    /// Clears the line on a signal, so that the shell prompt starts on an empty line.
    fn clear_on_signal(bar: Bar) -> Self {
        if !bar.is_hidden() {
            let (bar, signal) = (bar.clone(), wait_for_signal(true));
            // The handler replaces the default action of the signals for the rest of the process,
            // so the task must outlive the bar.
            tokio::spawn(async move {
                let code = signal.await;
                bar.finish_and_clear();
                std::process::exit(code);
            });
        }
        Self(bar)
    }

    /// Sets the number of ready replicas and the total.
    pub fn set_progress(&self, progress: Progress) {
        self.0.set_length(progress.wanted);
        self.0.set_position(progress.ready);
    }

    /// Sets the text of the line.
    pub fn set_message(&self, message: String) {
        self.0.set_message(message);
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
