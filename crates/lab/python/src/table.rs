//! Columns, as Arrow has them.

use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
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

/// A table that is being made.
#[derive(Default)]
pub(crate) struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    /// A column of words.
    pub(crate) fn text<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>) {
        let mut builder = StringBuilder::new();
        values.for_each(|value| builder.append_option(value));
        let array: StringArray = builder.finish();
        self.add(name, "", DataType::Utf8, Arc::new(array));
    }

    /// A column of numbers with a `unit`; one that has none is of counts or ratios.
    pub(crate) fn number(
        &mut self,
        name: &str,
        unit: &str,
        values: impl Iterator<Item = Option<f64>>,
    ) {
        let array: Float64Array = values.collect();
        self.add(name, unit, DataType::Float64, Arc::new(array));
    }

    /// A column of whole numbers.
    pub(crate) fn count(
        &mut self,
        name: &str,
        unit: &str,
        values: impl Iterator<Item = Option<u64>>,
    ) {
        let mut builder = UInt64Builder::new();
        values.for_each(|value| builder.append_option(value));
        self.add(name, unit, DataType::UInt64, Arc::new(builder.finish()));
    }

    fn add(&mut self, name: &str, unit: &str, kind: DataType, array: ArrayRef) {
        let mut field = Field::new(name, kind, true);
        if !unit.is_empty() {
            field.set_metadata([(UNIT.to_owned(), unit.to_owned())].into());
        }
        self.fields.push(field);
        self.arrays.push(array);
    }

    pub(crate) fn table(self) -> PyResult<Table> {
        let schema = Arc::new(Schema::new(self.fields));
        let batch = RecordBatch::try_new(schema, self.arrays);
        batch.map(Table).map_err(|error: ArrowError| PyValueError::new_err(error.to_string()))
    }
}
