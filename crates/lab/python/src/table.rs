//! Columns, as Arrow has them.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use midspan_tables::{Column, Values};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// A table that is read through Arrow's C stream interface (<https://arrow.apache.org/docs/format/CDataInterface.html>):
/// without a copy by whoever knows it.
#[pyclass(frozen, module = "midspan._midspan")]
pub(crate) struct Table(RecordBatch);

#[pymethods]
impl Table {
    /// A capsule with the table's stream. `requested_schema` may be passed over, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let schema = self.0.schema();
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new(py, stream, Some(c"arrow_array_stream".to_owned()))
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// Column -> unit, of those that have one.
    #[getter]
    fn units(&self) -> Vec<(String, String)> {
        let schema = self.0.schema();
        let of =
            |field: &Arc<Field>| Some((field.name().clone(), field.metadata().get(UNIT)?.clone()));
        schema.fields().iter().filter_map(of).collect()
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }
}

/// The key of a field's metadata that has its unit.
const UNIT: &str = "unit";

impl Table {
    /// Of the columns of a table.
    pub(crate) fn of(table: &midspan_tables::Table) -> PyResult<Table> {
        let columns = table.columns().iter();
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.map(column).unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        batch.map(Table).map_err(|error: ArrowError| PyValueError::new_err(error.to_string()))
    }
}

fn column(column: &Column) -> (Field, ArrayRef) {
    let (kind, array): (_, ArrayRef) = match &column.values {
        Values::Text(values) => {
            (DataType::Utf8, Arc::new(values.iter().map(Option::as_deref).collect::<StringArray>()))
        }
        Values::Number(values) => {
            (DataType::Float64, Arc::new(values.iter().copied().collect::<Float64Array>()))
        }
        Values::Count(values) => {
            (DataType::UInt64, Arc::new(values.iter().copied().collect::<UInt64Array>()))
        }
    };
    let mut field = Field::new(&column.name, kind, true);
    if !column.unit.is_empty() {
        field.set_metadata([(UNIT.to_owned(), column.unit.to_owned())].into());
    }
    (field, array)
}
