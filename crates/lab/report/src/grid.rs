//! Columns of text that line up, on a terminal or in a pipe.

use unicode_width::UnicodeWidthStr;

/// On which side a cell's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// How a cell stands out; shown on terminals only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Bold,
    Dim,
}

/// One cell.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    align: Align,
    look: Look,
}

impl Cell {
    pub(crate) fn left(text: impl Into<String>) -> Self {
        Cell { text: text.into(), align: Align::Left, look: Look::Plain }
    }

    pub(crate) fn right(text: impl Into<String>) -> Self {
        Cell { text: text.into(), align: Align::Right, look: Look::Plain }
    }

    pub(crate) fn empty() -> Self {
        Cell::left("")
    }

    pub(crate) fn look(self, look: Look) -> Self {
        Cell { look, ..self }
    }
}

/// Rows of cells. Two spaces stand between columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grid {
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The rows as lines, without spaces at their ends.
    pub(crate) fn render(&self, colour: bool) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            // Spaces are written only once something follows them.
            let mut pending = 0;
            for (cell, width) in row.iter().zip(&widths) {
                let padding = width - cell.text.width();
                let (before, after) = match cell.align {
                    Align::Left => (0, padding),
                    Align::Right => (padding, 0),
                };
                pending += before;
                if !cell.text.is_empty() {
                    line.push_str(&" ".repeat(pending));
                    line.push_str(&painted(&cell.text, cell.look, colour));
                    pending = 0;
                }
                pending += after + 2;
            }
            out.push_str(&line);
            out.push('\n');
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.text.width()).max().unwrap_or(0)
            })
            .collect()
    }
}

/// `text` in the given look, where colours are wanted.
pub(crate) fn painted(text: &str, look: Look, colour: bool) -> String {
    let code = match look {
        Look::Bold if colour => "1",
        Look::Dim if colour => "2",
        _ => return text.to_owned(),
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Breaks `text` at spaces into lines of at most `width` columns; lines after the first begin with
/// `indent` spaces. A word longer than a line stays whole.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.width();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let mut grid = Grid::default();
        grid.push(vec![Cell::left("loss"), Cell::right("none"), Cell::empty()]);
        grid.push(vec![Cell::left("0.05 %"), Cell::right("9.3"), Cell::left("± 1")]);
        assert_eq!(grid.render(false), "loss    none\n0.05 %   9.3  ± 1\n");
    }

    #[test]
    fn looks_need_a_terminal() {
        assert_eq!(painted("x", Look::Bold, false), "x");
        assert_eq!(painted("x", Look::Bold, true), "\u{1b}[1mx\u{1b}[0m");
    }

    #[test]
    fn long_text_breaks_between_words() {
        assert_eq!(wrapped("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrapped("", 8, 2), "");
    }
}
