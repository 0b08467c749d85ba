use std::{
    io::{self, Write, stderr},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use crossterm::{
    cursor::{MoveToColumn, MoveUp},
    queue,
    terminal::{Clear, ClearType, size},
};
use indicatif::TermLike;

/// A line on stderr that is redrawn correctly after the terminal has become narrower.
///
/// Terminals wrap a line that no longer fits. indicatif's own target pads each line to the width
/// and clears it by the old width, which would leave the wrapped rows.
#[derive(Debug, Default)]
pub struct Line {
    /// The number of characters that are drawn.
    drawn: AtomicUsize,
}

impl TermLike for Line {
    fn width(&self) -> u16 {
        // Some terminals report no width.
        let width = size().ok().map(|(width, _)| width);
        width.filter(|width| *width > 0).unwrap_or(80)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        // Skip the padding: the line was cleared before.
        if text.trim().is_empty() {
            return Ok(());
        }
        self.drawn.fetch_add(text.chars().count(), Relaxed);
        stderr().write_all(text.as_bytes())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.drawn.store(0, Relaxed);
        writeln!(stderr(), "{text}")
    }

    fn clear_line(&self) -> io::Result<()> {
        let drawn = self.drawn.swap(0, Relaxed);
        let rows = drawn.div_ceil(usize::from(self.width()));
        let above = u16::try_from(rows.saturating_sub(1)).unwrap_or(0);
        let mut out = stderr().lock();
        if above > 0 {
            queue!(out, MoveUp(above))?;
        }
        queue!(out, MoveToColumn(0), Clear(ClearType::FromCursorDown))
    }

    fn flush(&self) -> io::Result<()> {
        stderr().flush()
    }

    // The cursor stays in place: clearing the line clears all of its rows.

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
}
