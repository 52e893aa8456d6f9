//! Tables as text: RFC 4180, and beside it what the columns are, as a Frictionless Data package
//! (<https://specs.frictionlessdata.io/tabular-data-package/>).

use serde_json::{Value, json};

use crate::{Column, Table, Values};

/// A table with a line of the columns' names before it. What was not measured is empty.
pub fn csv(table: &Table) -> String {
    let mut text = String::new();
    let mut line = |fields: Vec<String>| {
        text.push_str(&fields.join(","));
        text.push_str("\r\n");
    };
    line(table.columns().iter().map(|column| quoted(&column.name)).collect());
    for row in 0..table.rows() {
        line(table.columns().iter().map(|column| field(column, row)).collect());
    }
    text
}

fn field(column: &Column, row: usize) -> String {
    let field = match &column.values {
        Values::Text(values) => values[row].as_deref().map(quoted),
        // The shortest text that is read as the same number again.
        Values::Number(values) => values[row].map(|value| value.to_string()),
        Values::Count(values) => values[row].map(|value| value.to_string()),
    };
    field.unwrap_or_default()
}

/// Quotes what holds what separates; an empty word is not the absence of one.
fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", word.replace('"', "\"\""));
    }
    word.to_owned()
}

/// The description of a folder that has `tables`, each by its name, as `NAME.csv`: types and units of all columns.
pub fn data_package<'a>(
    title: &str,
    tables: impl IntoIterator<Item = (&'a str, &'a Table)>,
) -> Value {
    let field = |column: &Column| {
        let kind = match column.values {
            Values::Text(_) => "string",
            Values::Number(_) => "number",
            Values::Count(_) => "integer",
        };
        let mut field = json!({ "name": column.name, "type": kind });
        if !column.unit.is_empty() {
            field["unit"] = column.unit.into();
        }
        field
    };
    let resources: Vec<Value> = tables
        .into_iter()
        .map(|(name, table)| {
            let fields: Vec<Value> = table.columns().iter().map(field).collect();
            json!({
                "name": name,
                "path": format!("{name}.csv"),
                "profile": "tabular-data-resource",
                "schema": { "fields": fields, "missingValues": [""] },
            })
        })
        .collect();
    json!({ "profile": "tabular-data-package", "title": title, "resources": resources })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(words: &[Option<String>], numbers: &[Option<f64>]) -> Table {
        let mut table = Table::default();
        table.text("loss, share", words.iter().map(Option::as_deref));
        table.number("goodput_bps", "bit/s", numbers.iter().copied());
        table.count("flows", "", numbers.iter().map(|number| number.map(|_| u64::MAX)));
        table
    }

    #[test]
    fn a_table_is_lines_of_fields() {
        let words = [Some("1 %".to_owned()), Some(String::new()), None];
        let text = csv(&table(&words, &[Some(1.5), None, Some(1e21)]));
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(
            lines,
            [
                "\"loss, share\",goodput_bps,flows",
                "1 %,1.5,18446744073709551615",
                "\"\",,",
                ",1000000000000000000000,18446744073709551615",
                ""
            ]
        );
    }

    #[test]
    fn types_and_units_stand_beside_it() {
        let table = table(&[None], &[None]);
        let package = data_package("Test", [("runs", &table)]);
        let fields = &package["resources"][0]["schema"]["fields"];
        assert_eq!(fields[1], json!({ "name": "goodput_bps", "type": "number", "unit": "bit/s" }));
        assert_eq!(fields[2], json!({ "name": "flows", "type": "integer" }));
        assert_eq!(package["resources"][0]["path"], "runs.csv");
    }

    /// Reads a line's fields, as RFC 4180 has them.
    fn read(text: &str) -> Vec<Vec<Option<String>>> {
        let (mut rows, mut row, mut rest) = (Vec::new(), Vec::new(), text);
        while !rest.is_empty() {
            let field = if let Some(mut quoted) = rest.strip_prefix('"') {
                let mut field = String::new();
                loop {
                    let end = quoted.find('"').unwrap();
                    field.push_str(&quoted[..end]);
                    quoted = &quoted[end + 1..];
                    let Some(more) = quoted.strip_prefix('"') else { break };
                    field.push('"');
                    quoted = more;
                }
                rest = quoted;
                Some(field)
            } else {
                let end = rest.find([',', '\r']).unwrap();
                let field = (end > 0).then(|| rest[..end].to_owned());
                rest = &rest[end..];
                field
            };
            row.push(field);
            if let Some(more) = rest.strip_prefix(',') {
                rest = more;
            } else {
                rest = rest.strip_prefix("\r\n").unwrap();
                rows.push(std::mem::take(&mut row));
            }
        }
        rows
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            rows in proptest::collection::vec(
                (proptest::option::of("[ -~\r\n\"]*"), proptest::option::of(any::<f64>())), 0..20),
        ) {
            let (words, numbers): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            let numbers: Vec<_> =
                numbers.into_iter().map(|number| number.filter(|number| number.is_finite())).collect();
            let read = read(&csv(&table(&words, &numbers)));
            prop_assert_eq!(read.len(), words.len() + 1);
            for (row, (word, number)) in read[1..].iter().zip(words.iter().zip(&numbers)) {
                prop_assert_eq!(&row[0], word);
                prop_assert_eq!(row[1].as_ref().map(|text| text.parse().unwrap()), *number);
            }
        }
    }
}
