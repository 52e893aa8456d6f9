//! From a file's text to a checked [`Scenario`].
//!
//! The text becomes a tree whose every key and value knows its place. The cell sections of that
//! tree are a template: for each cell of the sweep a copy of it gets the cell's values, which keep
//! the places where they were written, and is then read into typed form. An error therefore always
//! tells the line where it can be mended.

mod check;
mod head;
mod source;
mod sweep;

use midspan_units::wording::unknown;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use self::head::{Head, Short};
use self::source::{Source, TextSpan};
use self::sweep::{Choice, Sweep};
use crate::{Cell, CellSpec, Error, Scenario};

/// The sections that describe a cell and may name variables of the sweep.
const CELL_SECTIONS: [&str; 7] =
    ["path", "cells", "hosts", "relay", "assist", "workload", "service"];

/// See [`Scenario::parse`].
pub(crate) fn scenario(text: &str, file: &str) -> Result<Scenario, Error> {
    let source = Source { text, file };
    let document = Document::parse(source)?;
    let Document { head, template, sweep, short } = &document;
    let choices = sweep.choices();
    let mut scenario = build(source, head, template, sweep, &choices)?;
    sweep.check_used(&choices)?;
    head.check_matches(source, &choices, &scenario.cells)?;
    if let Some(short) = short {
        scenario.short = Some(Box::new(build_short(source, &document, short)?));
    }
    Ok(scenario)
}

/// A file, taken apart.
struct Document<'t> {
    head: Head,
    template: DeTable<'t>,
    sweep: Sweep<'t>,
    short: Option<Short<'t>>,
}

impl<'t> Document<'t> {
    fn parse(source: Source<'t>) -> Result<Document<'t>, Error> {
        let root = DeTable::parse(source.text).map_err(|error| source.toml_error(&error))?;
        let mut head = DeTable::new();
        let mut template = DeTable::new();
        let mut sweep = DeTable::new();
        let mut short = None;
        for (key, value) in root.into_inner() {
            match key.get_ref().as_ref() {
                "sweep" => sweep = table(source, "sweep", value)?,
                "short" => short = Some(Short::parse(source, value)?),
                name if CELL_SECTIONS.contains(&name) => drop(template.insert(key, value)),
                name if head::KEYS.contains(&name) => drop(head.insert(key, value)),
                name => {
                    let known = head::KEYS.into_iter().chain(CELL_SECTIONS);
                    let what = unknown("key", name, known.chain(["sweep", "short"]));
                    return Err(source.error(&key.span(), what));
                }
            }
        }
        let head: Head = read(source, head, 0..0).map_err(|(_, error)| error)?;
        head.check(source)?;
        let sweep = Sweep::parse(source, sweep)?;
        head.check_labels(&sweep)?;
        Ok(Document { head, template, sweep, short })
    }
}

fn build<'t>(
    source: Source<'t>,
    head: &Head,
    template: &DeTable<'t>,
    sweep: &Sweep<'t>,
    choices: &[Choice<'_, 't>],
) -> Result<Scenario, Error> {
    let mut cells = Vec::new();
    for choice in choices {
        let labels = choice.labels();
        let variants = head.variants_of(&labels);
        let spec = cell_spec(source, template, choice)?;
        check::service(source, template, &spec, &variants)?;
        if !variants.is_empty() {
            cells.push(Cell { labels, variants, spec });
        }
    }
    Ok(head.scenario(sweep.axes(), cells))
}

fn build_short<'t>(
    source: Source<'t>,
    full: &Document<'t>,
    short: &Short<'t>,
) -> Result<Scenario, Error> {
    let head = short.head(source, &full.head)?;
    let template = short.template(source, &full.template)?;
    let sweep = full.sweep.narrowed(&short.sweep)?;
    let scenario =
        build(source, &head, &template, &sweep, &sweep.choices()).map_err(|mut error| {
            error.what.push_str(" (in the short version)");
            error
        })?;
    if scenario.cells.is_empty() {
        return Err(source.error(&short.place, "`skip` leaves no cell to the short version"));
    }
    Ok(scenario)
}

fn cell_spec<'t>(
    source: Source<'t>,
    template: &DeTable<'t>,
    choice: &Choice<'_, 't>,
) -> Result<CellSpec, Error> {
    let mut sections = template.clone();
    for (_, section) in sections.iter_mut() {
        choice.substitute(section)?;
    }
    tag_workloads(source, &mut sections)?;
    let explain = |(place, error)| choice.explain(&place, error);
    let spec: CellSpec = read(source, sections.clone(), 0..0).map_err(explain)?;
    check::spec(source, &sections, &spec).map_err(explain)?;
    Ok(spec)
}

/// Reads `table` into `T`. Beside the error comes its place, for those who can explain it better.
fn read<'t, T: Deserialize<'t>>(
    source: Source<'t>,
    table: DeTable<'t>,
    place: TextSpan,
) -> Result<T, (TextSpan, Error)> {
    T::deserialize(toml::de::Deserializer::from(Spanned::new(place, table)))
        .map_err(|error| (error.span().unwrap_or(0..0), source.toml_error(&error)))
}

fn table<'t>(
    source: Source<'t>,
    name: &str,
    value: Spanned<DeValue<'t>>,
) -> Result<DeTable<'t>, Error> {
    let place = value.span();
    match value.into_inner() {
        DeValue::Table(table) => Ok(table),
        _ => Err(source.error(&place, format!("`{name}` must be a table: `[{name}]`"))),
    }
}

/// Turns `{ kind = "bulk", ... }` into `{ bulk = { ... } }`: serde's external tag keeps places,
/// where its internal one loses them.
fn tag_workloads<'t>(source: Source<'t>, sections: &mut DeTable<'t>) -> Result<(), Error> {
    if let Some(workload) = sections.get_mut("workload") {
        tag_workload(source, workload)?;
    }
    let Some(DeValue::Table(cells)) = sections.get_mut("cells").map(Spanned::get_mut) else {
        return Ok(());
    };
    let Some(DeValue::Array(others)) = cells.get_mut("others").map(Spanned::get_mut) else {
        return Ok(());
    };
    for others in others.iter_mut() {
        if let DeValue::Table(others) = others.get_mut()
            && let Some(workload) = others.get_mut("workload")
        {
            tag_workload(source, workload)?;
        }
    }
    Ok(())
}

fn tag_workload<'t>(source: Source<'t>, workload: &mut Spanned<DeValue<'t>>) -> Result<(), Error> {
    let place = workload.span();
    let DeValue::Table(keys) = workload.get_mut() else { return Ok(()) };
    let Some(kind) = keys.remove("kind") else {
        let what = "`kind` is missing from the workload: `bulk`, `transfer`, `page` or `video`";
        return Err(source.error(&place, what));
    };
    let kind_place = kind.span();
    let DeValue::String(kind) = kind.into_inner() else {
        let what = "`kind` is `\"bulk\"`, `\"transfer\"`, `\"page\"` or `\"video\"`";
        return Err(source.error(&kind_place, what));
    };
    let keys = Spanned::new(place.clone(), DeValue::Table(std::mem::take(keys)));
    let tagged = DeTable::from_iter([(Spanned::new(kind_place, kind), keys)]);
    *workload = Spanned::new(place, DeValue::Table(tagged));
    Ok(())
}
