use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use di_client::LiveView;
use jiff::Timestamp;
use ratatui::widgets::TableState;

use super::page::Page;

/// The state of the view: the open page, the filter and the selected line.
#[derive(Debug, Default)]
pub struct App {
    /// The namespace of the listed jobs; none for all namespaces.
    pub namespace: Option<String>,
    /// The namespace and name of the job with open replicas.
    pub opened: Option<(String, String)>,
    /// The text that lines must contain.
    pub filter: String,
    /// Whether keys edit the filter.
    pub typing: bool,
    /// Whether the help is open.
    pub help: bool,
    /// The key of the marked line; the line stays marked when other lines change.
    marked: Option<String>,
    /// The job that was marked when its replicas were opened.
    left: Option<String>,
    /// The scroll position of the table.
    pub table: TableState,
    /// The number of lines of a page.
    pub height: usize,
}

/// The result of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyResult {
    /// Continue.
    Continue,
    /// Quit the view.
    Quit,
}

impl App {
    pub fn new(namespace: Option<String>) -> Self {
        Self {
            namespace,
            ..Self::default()
        }
    }

    /// The page to show.
    pub fn page(&self, live: &LiveView, now: Timestamp) -> Page {
        let (namespace, opened) = (self.namespace.as_deref(), self.opened.as_ref());
        Page::new(namespace, opened, &self.filter, live, now)
    }

    /// Follows a new page: closes a deleted job, and marks the same line as before, or the line at
    /// the same position if it was removed.
    pub fn follow_page(&mut self, page: &Page) {
        if page.job.is_none() {
            self.close_job();
        }
        let lines = &page.lines;
        let found = lines
            .iter()
            .position(|line| Some(&line.key) == self.marked.as_ref());
        let last = lines.len().checked_sub(1);
        let at = found.or_else(|| Some(self.table.selected().unwrap_or(0).min(last?)));
        self.table.select(at);
        self.marked = at.and_then(|at| Some(lines.get(at)?.key.clone()));
    }

    /// Handles a key.
    pub fn handle_key(&mut self, key: KeyEvent, page: &Page) -> KeyResult {
        if key.kind == KeyEventKind::Release {
            return KeyResult::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyResult::Quit,
                _ => KeyResult::Continue,
            };
        }
        if self.help {
            self.help = false;
        } else if self.typing {
            self.edit_filter(key.code);
        } else if key.code == KeyCode::Char('q') {
            return KeyResult::Quit;
        } else {
            self.navigate(key.code, page);
        }
        KeyResult::Continue
    }

    fn edit_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    fn navigate(&mut self, key: KeyCode, page: &Page) {
        let step = self.height.max(1);
        match key {
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('/') => {
                self.filter.clear();
                self.typing = true;
            }
            KeyCode::Up | KeyCode::Char('k') => self.mark_line(page, |at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.mark_line(page, |at| at + 1),
            KeyCode::PageUp => self.mark_line(page, |at| at.saturating_sub(step)),
            KeyCode::PageDown => self.mark_line(page, |at| at + step),
            KeyCode::Home | KeyCode::Char('g') => self.mark_line(page, |_| 0),
            KeyCode::End | KeyCode::Char('G') => self.mark_line(page, |_| usize::MAX),
            KeyCode::Enter if self.opened.is_none() => {
                let line = self.table.selected().and_then(|at| page.lines.get(at));
                if let Some(job) = line.and_then(|line| line.job.clone()) {
                    self.opened = Some(job);
                    self.left = self.marked.take();
                    self.reset_table();
                }
            }
            KeyCode::Esc | KeyCode::Backspace if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.close_job(),
            _ => {}
        }
    }

    /// Closes the replicas of a job.
    fn close_job(&mut self) {
        if self.opened.take().is_some() {
            self.marked = self.left.take();
            self.reset_table();
        }
    }

    fn reset_table(&mut self) {
        self.filter.clear();
        self.table = TableState::default();
    }

    fn mark_line(&mut self, page: &Page, to: impl Fn(usize) -> usize) {
        let Some(last) = page.lines.len().checked_sub(1) else {
            return;
        };
        let at = to(self.table.selected().unwrap_or(0)).min(last);
        self.table.select(Some(at));
        self.marked = page.lines.get(at).map(|line| line.key.clone());
    }
}
