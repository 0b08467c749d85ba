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

/// One line on stderr that is drawn again and again, also when the terminal has become narrower meanwhile: terminals break what no longer
/// fits, and indicatif's own way fills every line up to its end and takes it away by the width that it was drawn with.
#[derive(Debug, Default)]
pub struct Line {
    /// How many characters stand there.
    drawn: AtomicUsize,
}

impl TermLike for Line {
    fn width(&self) -> u16 {
        // Some terminals do not know it.
        let width = size().ok().map(|(width, _)| width);
        width.filter(|width| *width > 0).unwrap_or(80)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        // There is nothing behind it to be written over.
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

    // To clear it is to clear all of its rows.

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
