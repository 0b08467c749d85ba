//! `kubectl di top`: a full-screen view of jobs and their replicas.

mod app;
mod page;
mod view;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use crossterm::event::{Event, EventStream};
use di_client::{Cluster, JobQuery, LiveView, list_jobs};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    flags::{globals::Globals, selection::non_empty},
    output::{rows::JobRow, table::Table},
    signals::wait_for_signal,
};

use app::{App, KeyResult};

/// Watch jobs and their replicas in a full-screen view.
///
/// Without a terminal, prints a table once.
#[derive(Debug, Args)]
#[command(after_help = "Keys:
  up, down, page up, page down, home, end   move
  enter                                     replicas of the job
  esc                                       back
  /                                         filter rows by a text
  ?                                         help
  q                                         quit

Examples:
  # Watch jobs in the current namespace
  kubectl di top

  # Watch jobs in all namespaces
  kubectl di top -A")]
pub struct Top {
    /// If present, list the requested object(s) across all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Selector (label query) to filter on, such as team=rl,tier!=test. Matching objects must
    /// satisfy all of the specified label constraints
    #[arg(short = 'l', long)]
    selector: Option<String>,
}

impl Top {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let query = JobQuery {
            all_namespaces: self.all_namespaces,
            selector: non_empty(self.selector.as_deref()),
            ..JobQuery::default()
        };
        // List once before the full screen, so that errors stay visible on the normal screen.
        let found = list_jobs(&cluster, &query).await?.jobs;
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            let now = Timestamp::now();
            let cells = |job| JobRow::new(job, now).into_cells(self.all_namespaces, true);
            let rows: Vec<_> = found.iter().map(cells).collect();
            if rows.is_empty() {
                eprintln!("No resources found");
                return Ok(ExitCode::SUCCESS);
            }
            let headers = JobRow::column_headers(self.all_namespaces, true);
            let mut table = Table::new(&headers, true);
            out.write_all(table.render(&rows).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut live = LiveView::new(&cluster, &query);
        live.wait_for_change().await?;
        // Handle signals before the full screen: a signal must not leave it open.
        let ended = wait_for_signal(true);
        // ratatui also restores the terminal on a panic.
        let mut terminal = ratatui::try_init()?;
        let result = self
            .run_screen(&mut terminal, &cluster, &mut live, ended)
            .await;
        ratatui::try_restore()?;
        result
    }

    async fn run_screen(
        &self,
        terminal: &mut DefaultTerminal,
        cluster: &Cluster,
        live: &mut LiveView,
        ended: impl Future<Output = i32>,
    ) -> Result<ExitCode> {
        let namespace = (!self.all_namespaces).then(|| cluster.namespace().name.clone());
        let mut app = App::new(namespace);
        let mut keys = EventStream::new();
        // Redraw every second, because ages change.
        let mut clock = interval(Duration::from_secs(1));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = std::pin::pin!(ended);
        loop {
            let page = app.page(live, Timestamp::now());
            app.follow_page(&page);
            let mut drawn = None;
            terminal.draw(|frame| drawn = Some(view::draw(frame, &page, &app)))?;
            if let Some(drawn) = drawn {
                (app.height, app.table) = (drawn.height, drawn.table);
            }
            tokio::select! {
                changed = live.wait_for_change() => {
                    changed?;
                    // Take all pending changes before the next draw.
                    while let Some(changed) = live.wait_for_change().now_or_never() {
                        changed?;
                    }
                }
                key = keys.next() => match key {
                    Some(Ok(Event::Key(key))) => {
                        if app.handle_key(key, &page) == KeyResult::Quit {
                            return Ok(ExitCode::SUCCESS);
                        }
                    }
                    // Other events, such as a new size, only need a redraw.
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
