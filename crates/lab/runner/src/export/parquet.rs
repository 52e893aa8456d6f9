//! Tables as Parquet files (<https://parquet.apache.org/docs/file-format/>): typed columns, and units in the schema's
//! metadata.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::Result;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::{Type, TypePtr};
use midspan_tables::{Column, Table, Values};

/// The key of the file's metadata under which units stand: a JSON object, column -> unit, of the columns that have one.
const UNITS: &str = "units";
/// That of what the table is of.
const TITLE: &str = "title";

/// The bytes of a file with `table`, compressed by Snappy; the same table always gives the same. What was not measured is
/// null. Whole numbers are unsigned, of 64 bits.
///
/// # Errors
/// What the format cannot hold, such as two columns of one name.
pub(super) fn parquet(title: &str, table: &Table) -> Result<Vec<u8>> {
    let columns = table.columns();
    let fields = columns.iter().map(field).collect::<Result<_>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    let units: BTreeMap<&str, &str> = columns
        .iter()
        .filter(|column| !column.unit.is_empty())
        .map(|column| (&*column.name, column.unit))
        .collect();
    let about = [(TITLE, title.to_owned()), (UNITS, serde_json::json!(units).to_string())];
    let about = about.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("midspan version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(about.collect()))
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    if table.rows() > 0 {
        let mut rows = file.next_row_group()?;
        for column in columns {
            write(column, &mut rows)?;
        }
        rows.close()?;
    }
    file.into_inner()
}

fn field(column: &Column) -> Result<TypePtr> {
    let (physical, logical) = match column.values {
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Values::Number(_) => (Physical::DOUBLE, None),
        Values::Count(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(field))
}

type Rows<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn write(column: &Column, rows: &mut Rows<'_>) -> Result<()> {
    match &column.values {
        Values::Text(values) => {
            let words = values.iter().map(|value| value.as_deref().map(ByteArray::from));
            write_as::<ByteArrayType>(words, rows)
        }
        Values::Number(values) => write_as::<DoubleType>(values.iter().copied(), rows),
        Values::Count(values) => {
            let bits = values.iter().map(|value| value.map(u64::cast_signed));
            write_as::<Int64Type>(bits, rows)
        }
    }
}

fn write_as<T: DataType>(
    values: impl Iterator<Item = Option<T::T>>,
    rows: &mut Rows<'_>,
) -> Result<()> {
    let (mut there, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        there.extend(value);
    }
    // There are as many as fields of the schema.
    let Some(mut column) = rows.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(&there, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;
    use proptest::prelude::*;

    fn read(bytes: Vec<u8>) -> SerializedFileReader<bytes::Bytes> {
        SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap()
    }

    #[test]
    fn types_and_units_stand_in_the_file() {
        let mut table = Table::default();
        table.text("loss", [None].into_iter());
        table.number("goodput_bps", "bit/s", [Some(1.5)].into_iter());
        table.count("seed", "", [Some(u64::MAX)].into_iter());
        let reader = read(parquet("Test", &table).unwrap());
        let file = reader.metadata().file_metadata();
        let about: BTreeMap<_, _> = file
            .key_value_metadata()
            .unwrap()
            .iter()
            .map(|pair| (&*pair.key, pair.value.as_deref().unwrap()))
            .collect();
        assert_eq!(about["title"], "Test");
        assert_eq!(about["units"], r#"{"goodput_bps":"bit/s"}"#);
        let columns = file.schema_descr().columns();
        let types: Vec<_> = columns
            .iter()
            .map(|column| (column.name(), column.logical_type_ref().cloned()))
            .collect();
        let unsigned = Some(LogicalType::integer(64, false));
        let wanted =
            [("loss", Some(LogicalType::String)), ("goodput_bps", None), ("seed", unsigned)];
        assert_eq!(types, wanted);
        let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
        let values: Vec<Field> = row.into_columns().into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [Field::Null, Field::Double(1.5), Field::ULong(u64::MAX)]);
    }

    #[test]
    fn a_table_without_rows_has_its_columns() {
        let mut table = Table::default();
        table.number("goodput_bps", "bit/s", [].into_iter());
        let reader = read(parquet("Test", &table).unwrap());
        let file = reader.metadata().file_metadata();
        assert_eq!((file.num_rows(), file.schema_descr().num_columns()), (0, 1));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            rows in proptest::collection::vec(
                (any::<Option<String>>(), any::<Option<f64>>(), any::<Option<u64>>()), 0..50),
        ) {
            let mut table = Table::default();
            table.text("a", rows.iter().map(|row| row.0.as_deref()));
            table.number("b", "s", rows.iter().map(|row| row.1));
            table.count("c", "", rows.iter().map(|row| row.2));
            let bytes = parquet("Test", &table).unwrap();
            prop_assert_eq!(&bytes, &parquet("Test", &table).unwrap());
            let reader = read(bytes);
            let read: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| {
                let mut values = row.unwrap().into_columns().into_iter().map(|(_, value)| value);
                [values.next().unwrap(), values.next().unwrap(), values.next().unwrap()]
            }).collect();
            let field = |row: &(Option<String>, Option<f64>, Option<u64>)| [
                row.0.clone().map_or(Field::Null, Field::Str),
                row.1.map_or(Field::Null, Field::Double),
                row.2.map_or(Field::Null, Field::ULong),
            ];
            prop_assert_eq!(read, rows.iter().map(field).collect::<Vec<_>>());
        }
    }
}
