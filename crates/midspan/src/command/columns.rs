//! Rows of text in columns that line up.

/// Lines of cells, two spaces between columns: those of which it `is_text` to the left, numbers to the right.
pub(super) fn aligned<const N: usize>(
    rows: &[[String; N]],
    is_text: impl Fn(usize) -> bool,
) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| {
            if is_text(at) { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}
