/// The width of the gap between columns, as in kubectl.
const GAP: usize = 3;

/// A table that keeps its column widths when a watch adds rows.
pub struct Table {
    headers: Option<Vec<String>>,
    widths: Vec<usize>,
}

impl Table {
    pub fn new(headers: &[&str], shown: bool) -> Self {
        Self {
            headers: shown.then(|| headers.iter().map(ToString::to_string).collect()),
            widths: vec![0; headers.len()],
        }
    }

    /// Renders rows; the first call also renders the headers.
    pub fn render(&mut self, rows: &[Vec<String>]) -> String {
        let headers = self.headers.take();
        let rows: Vec<_> = headers.iter().chain(rows).collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(*row) {
                *width = (*width).max(cell.chars().count() + GAP);
            }
        }
        let mut text = String::new();
        for row in rows {
            let cells = row.iter().zip(&self.widths);
            let cells: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            let line = cells.concat();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_row(cells: [&str; 2]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn later_rows_keep_the_column_widths() {
        let mut table = Table::new(&["NAME", "PHASE"], true);
        insta::assert_snapshot!(
            table.render(&[to_row(["cartpole", "Running"])]) + &table.render(&[to_row(["x", ""]), to_row(["x", "Failed"])]),
            @r"
        NAME       PHASE
        cartpole   Running
        x
        x          Failed
        "
        );
        assert_eq!(Table::new(&["NAME"], false).render(&[]), "");
    }
}
