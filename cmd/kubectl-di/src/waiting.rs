mod line;

use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

use clap::{ArgAction, Args};
use di_client::{Deadline, Job, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{args::limit, exec::ended};

use line::Line;

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
        Deadline::after(Some(self.timeout))
    }
}

/// The flag of commands that wait unless they are told not to.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitUnlessTold {
    /// Wait until it is done
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    wait: bool,
}

impl WaitUnlessTold {
    pub fn is_wanted(self) -> bool {
        self.wait
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
        let bar = Self::on_terminal(Some(0)).with_message(what);
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self::shown(bar)
    }

    /// The same without a count.
    pub fn spinner(what: String) -> Self {
        let bar = Self::on_terminal(None).with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::shown(bar)
    }

    fn on_terminal(length: Option<u64>) -> ProgressBar {
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::term_like(Box::new(Line::default()))
        } else {
            ProgressDrawTarget::hidden()
        };
        ProgressBar::with_draw_target(length, target)
    }

    /// Takes it away when we are told to end, so that the shell begins on a line of its own.
    fn shown(bar: ProgressBar) -> Self {
        if !bar.is_hidden() {
            let (bar, told) = (bar.clone(), ended(true));
            // Signals end nothing by themselves any more: it stays when the bar has gone.
            tokio::spawn(async move {
                let code = told.await;
                bar.finish_and_clear();
                std::process::exit(code);
            });
        }
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
