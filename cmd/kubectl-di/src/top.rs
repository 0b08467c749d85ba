//! `kubectl di top`: jobs and their replicas on a full screen, as they change.

mod app;
mod view;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use crossterm::event::{Event, EventStream};
use di_client::{Cluster, JobQuery, Live, jobs};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use crate::{exec::ended, globals::Globals, rows::JobRow, selection::given, table::Table};

use app::{App, Next};
use view::Page;

/// Watch jobs and their replicas on the whole screen.
///
/// Without a terminal it prints one table.
#[derive(Debug, Args)]
#[command(after_help = "Keys:
  up, down, page up, page down, home, end   move
  enter                                     replicas of the job
  esc                                       back
  /                                         only what contains a text
  ?                                         help
  q                                         quit

Examples:
  # Jobs of the current namespace
  kubectl di top

  # Jobs of all namespaces
  kubectl di top -A")]
pub struct Top {
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only jobs whose labels match, as team=rl,tier!=test
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// Leave out the names of the columns, where it prints a table
    #[arg(long)]
    no_headers: bool,
}

impl Top {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let query = JobQuery {
            all_namespaces: self.all_namespaces,
            selector: given(self.selector.as_deref()),
            ..JobQuery::default()
        };
        // What is refused is told before the screen is taken.
        let found = jobs(&cluster, &query).await?.jobs;
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            let now = Timestamp::now();
            let cells = |job| JobRow::new(job, now).cells(self.all_namespaces, true);
            let rows: Vec<_> = found.iter().map(cells).collect();
            if rows.is_empty() {
                eprintln!("No resources found");
                return Ok(ExitCode::SUCCESS);
            }
            let headers = JobRow::headers(self.all_namespaces, true);
            let mut table = Table::new(&headers, !self.no_headers);
            out.write_all(table.render(&rows).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut live = Live::new(&cluster, &query);
        live.changed().await?;
        // Before the screen is taken: a signal must not leave it so.
        let ended = ended(true);
        // It puts the terminal back when we panic, too.
        let mut terminal = ratatui::try_init()?;
        let result = self.show(&mut terminal, &cluster, &mut live, ended).await;
        ratatui::try_restore()?;
        result
    }

    async fn show(
        &self,
        terminal: &mut DefaultTerminal,
        cluster: &Cluster,
        live: &mut Live,
        ended: impl Future<Output = i32>,
    ) -> Result<ExitCode> {
        let place = (!self.all_namespaces).then(|| cluster.namespace().name.clone());
        let mut app = App::new(place);
        let mut keys = EventStream::new();
        // Ages grow by themselves.
        let mut clock = interval(Duration::from_secs(1));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = std::pin::pin!(ended);
        loop {
            let page = Page::of(&mut app, live, Timestamp::now());
            terminal.draw(|frame| page.draw(frame, &mut app))?;
            tokio::select! {
                changed = live.changed() => {
                    changed?;
                    // What came meanwhile is drawn at once, too.
                    while let Some(changed) = live.changed().now_or_never() {
                        changed?;
                    }
                }
                key = keys.next() => match key {
                    Some(Ok(Event::Key(key))) => {
                        if app.press(key, &page) == Next::Quit {
                            return Ok(ExitCode::SUCCESS);
                        }
                    }
                    // A new size is drawn to anyway.
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(ExitCode::SUCCESS),
                },
                _ = clock.tick() => {}
                code = &mut ended => return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
            }
        }
    }
}
