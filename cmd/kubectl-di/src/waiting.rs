use std::time::Duration;

use clap::Args;
use di_client::{Deadline, Job, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::limit;

/// The flags of commands that can wait for what they asked for.
#[derive(Clone, Copy, Debug, Args)]
pub struct Waiting {
    /// Wait until it is done
    #[arg(long)]
    wait: bool,
    /// How long to wait; 0 means without limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = limit)]
    timeout: Duration,
}

impl Waiting {
    pub fn is_wanted(self) -> bool {
        self.wait
    }

    /// From now.
    pub fn deadline(self) -> Deadline {
        Deadline::after(Some(self.timeout).filter(|timeout| *timeout != Duration::MAX))
    }
}

/// What stood in the way when the time was over.
pub fn condition_on(job: &Job) -> String {
    let what = format!("the condition on {}", job.title());
    match job.trouble() {
        Some(trouble) => format!("{what} ({trouble})"),
        None => what,
    }
}

/// Shows on a terminal how far it is; nothing elsewhere.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn new(what: String) -> Self {
        let bar = ProgressBar::new(0).with_message(what);
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// The same without a count.
    pub fn spinner(what: String) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    pub fn show(&self, progress: Progress) {
        self.0.set_length(progress.wanted);
        self.0.set_position(progress.ready);
    }

    pub fn say(&self, what: String) {
        self.0.set_message(what);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
