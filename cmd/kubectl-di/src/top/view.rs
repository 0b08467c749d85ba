use std::collections::BTreeMap;

use di_client::{Job, LiveView, Replica};
use jiff::Timestamp;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line as Text, Span},
    widgets::{Block, Cell, Clear, Paragraph, Row, Table},
};

use crate::{
    colour::{Tone, tone_for_status},
    rows::{JobRow, replica_cells, replica_headers},
};

use super::app::App;

/// A page of the view.
#[derive(Debug, Default)]
pub struct Page {
    /// The title above the table.
    pub title: String,
    /// The summary next to the title.
    pub summary: String,
    /// The column headers.
    pub headers: Vec<&'static str>,
    /// The lines that match the filter.
    pub lines: Vec<Line>,
    /// The watch error, if the page may be out of date.
    pub trouble: Option<String>,
}

/// A line of the table.
#[derive(Debug)]
pub struct Line {
    /// The unique key of the line.
    pub key: String,
    /// The namespace and name of the job, if the line is a job.
    pub job: Option<(String, String)>,
    /// The cells.
    pub cells: Vec<String>,
    /// The index of the coloured column, and its tone.
    pub tone: Option<(usize, Tone)>,
}

impl Page {
    /// The page for the state of the view and of the cluster.
    pub fn for_app(app: &mut App, live: &LiveView, now: Timestamp) -> Self {
        let opened = app.opened.clone();
        let job = opened.and_then(|(namespace, name)| live.find_job(&namespace, &name));
        let mut page = if let Some(job) = job {
            Self::replicas_page(job, &live.replicas_of_job(job), now)
        } else {
            // The job was deleted, so go back to the list of jobs.
            app.close_job();
            Self::jobs_page(live.jobs(), app.namespace.as_deref(), now)
        };
        page.trouble = live.watch_error().map(str::to_owned);
        page.apply_filter(app);
        page
    }

    fn jobs_page<'a>(
        jobs: impl Iterator<Item = &'a Job>,
        namespace: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let all = namespace.is_none();
        let mut phases: BTreeMap<String, usize> = BTreeMap::new();
        let mut lines = Vec::new();
        for job in jobs {
            let phase = job.status.phase.map_or("New", di_api::Phase::as_str);
            *phases.entry(phase.to_owned()).or_default() += 1;
            lines.push(Line {
                key: format!("{}/{}", job.namespace(), job.name()),
                job: Some((job.namespace().to_owned(), job.name().to_owned())),
                cells: JobRow::new(job, now).into_cells(all, true),
                tone: tone_for_status(phase).map(|tone| (if all { 2 } else { 1 }, tone)),
            });
        }
        let phases = phases
            .iter()
            .map(|(phase, count)| format!("{count} {phase}"));
        Self {
            title: match namespace {
                Some(namespace) => format!("Jobs in {namespace}"),
                None => "Jobs in all namespaces".to_owned(),
            },
            summary: match lines.len() {
                0 => "none".to_owned(),
                _ => phases.collect::<Vec<_>>().join(", "),
            },
            headers: JobRow::column_headers(all, true),
            lines,
            trouble: None,
        }
    }

    fn replicas_page(job: &Job, replicas: &[Replica], now: Timestamp) -> Self {
        // The columns of the wide table without URL and REPLACES; the status comes first, because
        // narrow windows cut the columns on the right.
        const ORDER: [usize; 11] = [0, 1, 4, 5, 6, 7, 8, 9, 10, 2, 3];
        let headers = replica_headers(true);
        let status = &job.status;
        let mut summary = vec![status.phase.map_or("New", di_api::Phase::as_str).to_owned()];
        let mut add = |label: &str, text: &Option<String>| {
            summary.extend(text.as_ref().map(|text| format!("{label}{text}")));
        };
        add("collectors ", &status.collectors_ready);
        add("learners ", &status.learners_ready);
        add("", &status.reason);
        let line = |replica: &Replica| {
            let mut cells = replica_cells(replica, now, true);
            let cells = ORDER.map(|at| std::mem::take(&mut cells[at])).to_vec();
            Line {
                key: replica.name.clone(),
                job: None,
                cells,
                tone: tone_for_status(replica.display_status()).map(|tone| (2, tone)),
            }
        };
        Self {
            title: format!("{}/{}", job.namespace(), job.name()),
            summary: summary.join(", "),
            headers: ORDER.map(|at| headers[at]).to_vec(),
            lines: replicas.iter().map(line).collect(),
            trouble: None,
        }
    }

    /// Removes the lines that do not match the filter.
    fn apply_filter(&mut self, app: &mut App) {
        let filter = app.filter.to_lowercase();
        self.lines.retain(|line| {
            let mut cells = line.cells.iter();
            filter.is_empty() || cells.any(|cell| cell.to_lowercase().contains(&filter))
        });
        let keys: Vec<_> = self.lines.iter().map(|line| line.key.as_str()).collect();
        app.restore_mark(&keys);
    }

    /// Draws the page.
    pub fn draw(&self, frame: &mut Frame<'_>, app: &mut App) {
        let [top, middle, bottom] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        app.height = usize::from(middle.height.saturating_sub(1));
        // On a larger screen, scroll up to fill the page.
        let max_offset = self.lines.len().saturating_sub(app.height);
        *app.table.offset_mut() = app.table.offset().min(max_offset);
        let title = Text::from(vec![
            Span::styled(&self.title, Style::new().add_modifier(Modifier::BOLD)),
            Span::raw("  "),
            Span::raw(&self.summary),
        ]);
        frame.render_widget(title, top);
        frame.render_stateful_widget(self.build_table(middle.width), middle, &mut app.table);
        frame.render_widget(self.footer_line(app), bottom);
        if app.help {
            draw_help(frame);
        }
    }

    fn build_table(&self, width: u16) -> Table<'_> {
        let widths = (0..self.headers.len()).map(|at| {
            let cells = self.lines.iter().filter_map(|line| line.cells.get(at));
            let cells = cells.map(|cell| cell.chars().count());
            let widest = cells.max().unwrap_or(0).max(self.headers[at].len());
            u16::try_from(widest).unwrap_or(u16::MAX)
        });
        let widths = fit_columns(&widths.collect::<Vec<_>>(), width);
        let count = widths.len();
        let header = Row::new(self.headers.iter().copied().take(count));
        let rows = self.lines.iter().map(|line| {
            let cells = line.cells.iter().enumerate();
            Row::new(cells.take(count).map(|(at, cell)| {
                let tone = line.tone.filter(|(column, _)| *column == at);
                Cell::new(cell.as_str())
                    .style(tone.map_or(Style::new(), |(_, tone)| tone_style(tone)))
            }))
        });
        Table::new(rows, widths)
            .column_spacing(GAP)
            .header(header.style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
    }

    fn footer_line<'a>(&'a self, app: &'a App) -> Text<'a> {
        if app.typing {
            return Text::from(format!("/{}_", app.filter));
        }
        if let Some(trouble) = &self.trouble {
            let text = format!("not up to date, retrying: {trouble}");
            return Text::styled(text, tone_style(Tone::Error));
        }
        let back = if app.opened.is_some() {
            "esc back"
        } else {
            "enter replicas"
        };
        let filter = match app.filter.as_str() {
            "" => "/ filter".to_owned(),
            filter => format!("/{filter}  esc all"),
        };
        Text::from(format!("{back}  {filter}  ? help  q quit"))
    }
}

/// The width of the gap between columns.
const GAP: u16 = 3;
/// The minimum width of a cut column.
const MIN_WIDTH: u16 = 5;

/// The widths of the columns that fit, from the left; the last may be cut.
fn fit_columns(widths: &[u16], mut room: u16) -> Vec<Constraint> {
    let mut fitting = Vec::new();
    for width in widths {
        if room < MIN_WIDTH.min(*width) {
            break;
        }
        fitting.push(Constraint::Length(room.min(*width)));
        room = room.saturating_sub(width.saturating_add(GAP));
    }
    fitting
}

/// The style of a tone. crossterm handles NO_COLOR.
fn tone_style(tone: Tone) -> Style {
    match tone {
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Warning => Style::new().fg(Color::Yellow),
        Tone::Error => Style::new().fg(Color::Red),
        Tone::Heading => Style::new().add_modifier(Modifier::BOLD),
    }
}

fn draw_help(frame: &mut Frame<'_>) {
    let keys = [
        ("up k, down j", "move"),
        ("pgup, pgdn", "move by a page"),
        ("home g, end G", "first, last"),
        ("enter", "replicas of the job"),
        ("esc", "back"),
        ("/", "filter rows by a text"),
        ("?", "this help"),
        ("q, ctrl-c", "quit"),
    ];
    let lines: Vec<_> = keys
        .iter()
        .map(|(key, help)| Text::from(format!(" {key:15}{help} ")))
        .collect();
    let (width, height) = (44, u16::try_from(lines.len()).unwrap_or(0) + 2);
    let screen = frame.area();
    let area = Rect {
        x: screen.width.saturating_sub(width) / 2,
        y: screen.height.saturating_sub(height) / 2,
        width,
        height,
    }
    .intersection(screen);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" Keys ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
