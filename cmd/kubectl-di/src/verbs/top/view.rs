use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line as Text, Span},
    widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState},
};

use crate::output::colour::Tone;

use super::{app::App, page::Page};

/// What was drawn: the state of the view follows the size of the screen.
#[derive(Debug)]
pub struct Drawn {
    /// The number of lines of a page.
    pub height: usize,
    /// The selected line and the scroll position.
    pub table: TableState,
}

/// Draws the page.
pub fn draw(frame: &mut Frame<'_>, page: &Page, app: &App) -> Drawn {
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let height = usize::from(middle.height.saturating_sub(1));
    // On a larger screen, scroll up to fill the page.
    let mut table = app.table;
    let max_offset = page.lines.len().saturating_sub(height);
    *table.offset_mut() = table.offset().min(max_offset);
    let title = Text::from(vec![
        Span::styled(&page.title, Style::new().add_modifier(Modifier::BOLD)),
        Span::raw("  "),
        Span::raw(&page.summary),
    ]);
    frame.render_widget(title, top);
    frame.render_stateful_widget(build_table(page, middle.width), middle, &mut table);
    frame.render_widget(footer_line(page, app), bottom);
    if app.help {
        draw_help(frame);
    }
    Drawn { height, table }
}

fn build_table(page: &Page, width: u16) -> Table<'_> {
    let widths = (0..page.headers.len()).map(|at| {
        let cells = page.lines.iter().filter_map(|line| line.cells.get(at));
        let cells = cells.map(|cell| cell.chars().count());
        let widest = cells.max().unwrap_or(0).max(page.headers[at].len());
        u16::try_from(widest).unwrap_or(u16::MAX)
    });
    let widths = fit_columns(&widths.collect::<Vec<_>>(), width);
    let count = widths.len();
    let header = Row::new(page.headers.iter().copied().take(count));
    let rows = page.lines.iter().map(|line| {
        let cells = line.cells.iter().enumerate();
        Row::new(cells.take(count).map(|(at, cell)| {
            let tone = line.tone.filter(|(column, _)| *column == at);
            Cell::new(cell.as_str()).style(tone.map_or(Style::new(), |(_, tone)| tone_style(tone)))
        }))
    });
    Table::new(rows, widths)
        .column_spacing(GAP)
        .header(header.style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn footer_line<'a>(page: &'a Page, app: &'a App) -> Text<'a> {
    if app.typing {
        return Text::from(format!("/{}_", app.filter));
    }
    if let Some(trouble) = &page.trouble {
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
