/// Between columns, as in kubectl.
const GAP: usize = 3;

/// A table whose columns keep their width when more rows follow, as in a watch.
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

    /// The rows as text, with the headers before the first.
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

    fn row(cells: [&str; 2]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_keep_their_width_in_later_rows() {
        let mut table = Table::new(&["NAME", "PHASE"], true);
        insta::assert_snapshot!(
            table.render(&[row(["cartpole", "Running"])]) + &table.render(&[row(["x", ""]), row(["x", "Failed"])]),
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
