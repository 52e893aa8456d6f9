//! A table of typed columns.

/// Rows of records, column by column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    columns: Vec<Column>,
}

/// One column: every table has as many values in each.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Unique in its table.
    pub name: String,
    /// The unit of its numbers; empty for words, ratios and what is counted one by one.
    pub unit: &'static str,
    /// One for each row; none where nothing was measured.
    pub values: Values,
}

/// The values of a column, which are all of a type.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Words.
    Text(Vec<Option<String>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// Whole numbers.
    Count(Vec<Option<u64>>),
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Values::Text(values) => values.len(),
            Values::Number(values) => values.len(),
            Values::Count(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Table {
    /// In the order in which they are shown.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// Adds a column of words, as many as the table has rows if it has columns already.
    pub fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>) {
        self.add(name, "", Values::Text(values.map(|value| value.map(str::to_owned)).collect()));
    }

    /// The same of numbers with a `unit`; one that has none is of counts or ratios.
    pub fn number(
        &mut self,
        name: &str,
        unit: &'static str,
        values: impl Iterator<Item = Option<f64>>,
    ) {
        self.add(name, unit, Values::Number(values.collect()));
    }

    /// The same of whole numbers.
    pub fn count(
        &mut self,
        name: &str,
        unit: &'static str,
        values: impl Iterator<Item = Option<u64>>,
    ) {
        self.add(name, unit, Values::Count(values.collect()));
    }

    fn add(&mut self, name: &str, unit: &'static str, values: Values) {
        debug_assert!(self.columns.is_empty() || values.len() == self.rows());
        self.columns.push(Column { name: name.to_owned(), unit, values });
    }
}
