use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;

use super::view::Page;

/// What is looked at, and where.
#[derive(Debug, Default)]
pub struct App {
    /// The namespace whose jobs are shown; none for all.
    pub namespace: Option<String>,
    /// The job whose replicas are shown: namespace and name.
    pub opened: Option<(String, String)>,
    /// Only lines that contain this.
    pub filter: String,
    /// Whether what is typed goes to the filter.
    pub typing: bool,
    /// Whether the keys are explained.
    pub help: bool,
    /// The line that is marked, by its key: it stays marked when others come and go.
    marked: Option<String>,
    /// The job that was marked when its replicas were opened.
    left: Option<String>,
    /// What of the table is on the screen.
    pub table: TableState,
    /// Lines that a page has.
    pub height: usize,
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// On with it.
    Go,
    /// That is all.
    Quit,
}

impl App {
    pub fn new(namespace: Option<String>) -> Self {
        Self {
            namespace,
            ..Self::default()
        }
    }

    /// Marks the same line as before, or the one that stands in its place now.
    pub fn settle(&mut self, keys: &[&str]) {
        let found = keys
            .iter()
            .position(|key| Some(*key) == self.marked.as_deref());
        let last = keys.len().checked_sub(1);
        let at = found.or_else(|| Some(self.table.selected().unwrap_or(0).min(last?)));
        self.table.select(at.filter(|_| last.is_some()));
        self.marked = at.and_then(|at| Some((*keys.get(at)?).to_owned()));
    }

    /// Does what a key stands for.
    pub fn press(&mut self, key: KeyEvent, page: &Page) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Go;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Next::Quit,
                _ => Next::Go,
            };
        }
        if self.help {
            self.help = false;
        } else if self.typing {
            self.type_in(key.code);
        } else if key.code == KeyCode::Char('q') {
            return Next::Quit;
        } else {
            self.navigate(key.code, page);
        }
        Next::Go
    }

    fn type_in(&mut self, key: KeyCode) {
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
            KeyCode::Up | KeyCode::Char('k') => self.mark(page, |at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.mark(page, |at| at + 1),
            KeyCode::PageUp => self.mark(page, |at| at.saturating_sub(step)),
            KeyCode::PageDown => self.mark(page, |at| at + step),
            KeyCode::Home | KeyCode::Char('g') => self.mark(page, |_| 0),
            KeyCode::End | KeyCode::Char('G') => self.mark(page, |_| usize::MAX),
            KeyCode::Enter if self.opened.is_none() => {
                let line = self.table.selected().and_then(|at| page.lines.get(at));
                if let Some(job) = line.and_then(|line| line.job.clone()) {
                    self.opened = Some(job);
                    self.left = self.marked.take();
                    self.start_over();
                }
            }
            KeyCode::Esc | KeyCode::Backspace if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            _ => {}
        }
    }

    /// Leaves the replicas of a job.
    pub fn back(&mut self) {
        if self.opened.take().is_some() {
            self.marked = self.left.take();
            self.start_over();
        }
    }

    fn start_over(&mut self) {
        self.filter.clear();
        self.table = TableState::default();
    }

    fn mark(&mut self, page: &Page, to: impl Fn(usize) -> usize) {
        let Some(last) = page.lines.len().checked_sub(1) else {
            return;
        };
        let at = to(self.table.selected().unwrap_or(0)).min(last);
        self.table.select(Some(at));
        self.marked = page.lines.get(at).map(|line| line.key.clone());
    }
}
