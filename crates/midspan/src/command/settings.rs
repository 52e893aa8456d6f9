//! Keys of a file that the command line overrides: `--set KEY=VALUE`.

use toml::{Table, Value};

/// Sets what a dotted key names, in whatever table that is.
pub(super) fn put(table: &mut Table, key: &str, value: Value) -> Result<(), String> {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
            Ok(())
        }
        Some((outer, inner)) => {
            let nested = table.entry(outer).or_insert_with(|| Value::Table(Table::new()));
            match nested {
                Value::Table(nested) => put(nested, inner, value),
                _ => Err(format!("`{outer}` is not a table")),
            }
        }
    }
}

/// A key and its value; what is no TOML by itself is taken as text, so that a shell's quotes do.
pub(super) fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE, such as workers=2")?;
    let value = value.trim();
    let parsed = format!("value = {value}").parse::<Table>();
    let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
    Ok((key.trim().to_owned(), parsed.unwrap_or_else(|| Value::String(value.to_owned()))))
}
