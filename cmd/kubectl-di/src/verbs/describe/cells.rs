use std::fmt::Display;

use crate::output::colour::Tone;

/// A text and its tone.
pub type Cell = (String, Option<Tone>);

/// The name of a field and its lines.
pub type Field = (&'static str, Vec<Cell>);

/// A cell without a tone.
pub fn plain_cell(text: impl Display) -> Cell {
    (text.to_string(), None)
}
