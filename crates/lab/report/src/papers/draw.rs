//! What a description's chart shows, drawn.

use maud::Markup;
use midspan_scenario::Metric;
use midspan_scenario::record::{DirectionRecord, PageRecord, PageSample};

use super::Runs;
use super::describe::{Chart, Item, Kind, Series, meant};
use super::stated::{Stated, Unit};
use super::values::{Labels, Number, Values, metric_named};
use super::wanted::{Wanted, place, variant_named};
use crate::plot::figure::{self, Dot, Figure};
use crate::plot::sheet::Source;
use crate::plot::trace::{Curve, Panel, Trace};
use midspan_units::number::Quantity;

/// The drawing of `chart`, with the numbers of its runs or the item's.
pub(super) fn chart(chart: &Chart, item: &Item, runs: &Runs) -> Result<Markup, String> {
    let values = |name: Option<&str>| name.and_then(|name| runs.get(name)?.as_ref());
    let live = values(meant(&chart.live, &item.live));
    let sim = values(meant(&chart.sim, &item.sim));
    let sources: Vec<(Source, &Values)> = [(Source::Live, live), (Source::Sim, sim)]
        .into_iter()
        .filter_map(|(source, values)| Some((source, values?)))
        .collect();
    let title = if chart.title.is_empty() { &item.title } else { &chart.title };
    let drawing = Drawing { chart, description: format!("{}: {title}", item.name()), sources };
    match chart.kind {
        Kind::Lines | Kind::Bars => Ok(drawing.figure()?.draw()),
        Kind::Cdf => Ok(drawing.distribution()?.draw()),
        Kind::Rate => Ok(drawing.rate()?.draw()),
        Kind::Events => Ok(drawing.events()?.draw()),
    }
}

/// What a look at a path counts.
type Count = fn(&PageSample) -> u64;

struct Drawing<'a> {
    chart: &'a Chart,
    description: String,
    sources: Vec<(Source, &'a Values)>,
}

impl Drawing<'_> {
    fn figure(&self) -> Result<Figure, String> {
        let chart = self.chart;
        let metric = metric_named(&chart.measure)?;
        if chart.over.is_none() {
            self.check_places()?;
        }
        let mut series = Vec::new();
        let mut base = Vec::new();
        for (hue, one) in chart.series.iter().enumerate() {
            let mut ours = vec![None; chart.points.len()];
            for (source, values) in &self.sources {
                let dots = match &chart.over {
                    Some(over) => self.factors(one, metric, over, values)?,
                    None => self.dots(one, metric, values)?,
                };
                for (known, dot) in ours.iter_mut().zip(&dots) {
                    *known = known.or(*dot);
                }
                if dots.iter().any(Option::is_some) {
                    series.push(figure::Series {
                        name: one.name.clone(),
                        hue,
                        source: *source,
                        values: dots,
                    });
                }
            }
            let (stated, factors) = self.stated(one)?;
            if hue == 0 {
                base = stated.iter().zip(&ours).map(|(stated, ours)| stated.or(*ours)).collect();
            }
            let gains: Vec<Option<Dot>> = factors
                .iter()
                .zip(&base)
                .map(|(factor, base)| Some(Dot { mean: (*factor)? * (*base)?.mean, spread: 0.0 }))
                .collect();
            for (source, values) in [(Source::Paper, stated), (Source::PaperGain, gains)] {
                if values.iter().any(Option::is_some) {
                    series.push(figure::Series { name: one.name.clone(), hue, source, values });
                }
            }
        }
        if !series.iter().any(|one| !one.source.is_paper()) {
            return Err(format!("no run has any of the points of `{}`", chart.along));
        }
        let names = if chart.names.is_empty() { &chart.points } else { &chart.names };
        if names.len() != chart.points.len() {
            return Err("`names` wants one for each of `points`".to_owned());
        }
        Ok(Figure {
            description: self.description.clone(),
            x_title: chart.x.clone(),
            y_title: if chart.y.is_empty() { metric.title } else { &chart.y }.to_owned(),
            quantity: if chart.over.is_some() { Quantity::Count } else { metric.quantity },
            bars: chart.kind == Kind::Bars,
            points: names.clone(),
            series,
            rules: self.levels()?,
        })
    }

    /// A cell that was left out has no number; but each point and each series must have one somewhere.
    fn check_places(&self) -> Result<(), String> {
        let chart = self.chart;
        let has = |series: &Series, point: &String| {
            let labels = self.labels(series, point);
            self.sources.iter().any(|(_, values)| values.has(&labels))
        };
        for point in &chart.points {
            if !chart.series.iter().any(|series| has(series, point)) {
                return Err(format!("no cell has the point `{point}`"));
            }
        }
        for series in &chart.series {
            if !chart.points.iter().any(|point| has(series, point)) {
                return Err(format!("no cell has the series `{}`", series.name));
            }
        }
        Ok(())
    }

    /// One number for each point.
    fn dots(
        &self,
        series: &Series,
        metric: &'static Metric,
        values: &Values,
    ) -> Result<Vec<Option<Dot>>, String> {
        let variant = variant_named(&series.variant)?;
        let dot = |point: &String| {
            let labels = self.labels(series, point);
            let found: Vec<Number> =
                values.numbers(variant, metric, &labels).map(|(_, number)| number).collect();
            match found[..] {
                [] => Ok(None),
                [Number { mean, deviation }] => {
                    let spread = if self.chart.spread { deviation } else { 0.0 };
                    Ok(Some(Dot { mean, spread }))
                }
                _ => Err(format!("{} cells have {labels:?}", found.len())),
            }
        };
        self.chart.points.iter().map(dot).collect()
    }

    /// One factor for each point: of the series' numbers over others, where `{}` stands for the point in one of both.
    fn factors(
        &self,
        series: &Series,
        metric: &'static Metric,
        over: &Labels,
        values: &Values,
    ) -> Result<Vec<Option<Dot>>, String> {
        let of_point = over.values().any(|label| label.contains("{}"));
        let dot = |point: &String| {
            let fill = |labels: &Labels| -> Labels {
                let filled =
                    labels.iter().map(|(axis, label)| (axis.clone(), label.replace("{}", point)));
                filled.collect()
            };
            let mut of = self.labels(series, point);
            of.extend(series.at.clone());
            if of_point && !series.at.contains_key(&self.chart.along) {
                of.remove(&self.chart.along);
            }
            of.insert("variant".to_owned(), series.variant.clone());
            let over = fill(over);
            let (take, except) = (self.chart.take, &self.chart.except);
            let number = Wanted { metric, of, over: Some(&over), take, except }.number(values)?;
            Ok(number.map(|mean| Dot { mean, spread: 0.0 }))
        };
        self.chart.points.iter().map(dot).collect()
    }

    /// What the paper states of all points.
    fn levels(&self) -> Result<Vec<(String, f64)>, String> {
        let levels = self.chart.levels.iter().map(|(name, text)| {
            let level = Stated::parse(text)?.value();
            Ok((name.clone(), level.ok_or_else(|| format!("level `{text}` must be a number"))?))
        });
        levels.collect()
    }

    fn labels(&self, series: &Series, point: &str) -> Labels {
        let mut labels = self.chart.at.clone();
        labels.extend(series.at.clone());
        if !self.chart.along.is_empty() {
            labels.insert(self.chart.along.clone(), series.label.replace("{}", point));
        }
        labels
    }

    /// What the paper states at each point: a number, or a factor over the first series.
    #[expect(clippy::type_complexity, reason = "two columns of one table")]
    fn stated(&self, series: &Series) -> Result<(Vec<Option<Dot>>, Vec<Option<f64>>), String> {
        if let Some(other) = series.paper.keys().find(|point| !self.chart.points.contains(point)) {
            return Err(format!("`paper` of {} has `{other}`, which is no point", series.name));
        }
        let mut columns = (Vec::new(), Vec::new());
        for point in &self.chart.points {
            let stated = series.paper.get(point).map(|text| Stated::parse(text)).transpose()?;
            let value = stated.and_then(Stated::value);
            let is_factor =
                stated.is_some_and(|stated| matches!(stated.unit, Unit::Factor | Unit::Percent));
            columns.0.push(value.filter(|_| !is_factor).map(|mean| Dot { mean, spread: 0.0 }));
            columns.1.push(value.filter(|_| is_factor));
        }
        Ok(columns)
    }

    /// The distribution of the queueing delay.
    fn distribution(&self) -> Result<Trace, String> {
        let of = |values: &Values, series: &Series| {
            let (variant, labels) = self.place(series)?;
            Ok(values.delays(variant, &labels).and_then(distribution))
        };
        let curves = self.curves(of)?;
        Ok(Trace {
            description: self.description.clone(),
            x_title: "Queueing delay of a packet".to_owned(),
            x_quantity: Quantity::Duration,
            x_from_zero: false,
            x_up_to: 0.0,
            panels: vec![Panel {
                title: "Share of packets, %".to_owned(),
                quantity: Quantity::Count,
                from_zero: true,
                up_to: 0.0,
                names: Vec::new(),
                // A mark says where a straight line between two is a guess.
                curves: curves
                    .into_iter()
                    .map(|curve| Curve { marked: curve.points.len() < 100, ..curve })
                    .collect(),
                rules: Vec::new(),
            }],
        })
    }

    /// The sending rate over time.
    fn rate(&self) -> Result<Trace, String> {
        let of = |values: &Values, series: &Series| {
            let (variant, labels) = self.place(series)?;
            let rate = |sample: &PageSample| Some((sample.at_s, sample.rate_bps?));
            let page = values.page(variant, &labels);
            Ok(page.map(|page| page.samples.iter().filter_map(rate).collect()))
        };
        Ok(Trace {
            description: self.description.clone(),
            x_title: "Time since the page was asked for".to_owned(),
            x_quantity: Quantity::Duration,
            x_from_zero: true,
            x_up_to: 0.0,
            panels: vec![Panel {
                title: "Sending rate, payload".to_owned(),
                quantity: Quantity::Rate,
                from_zero: false,
                up_to: 0.0,
                names: Vec::new(),
                curves: self.curves(of)?,
                rules: self.levels()?,
            }],
        })
    }

    /// When packets were lost on the air, and when acknowledgements were marked.
    fn events(&self) -> Result<Trace, String> {
        let mut curves = Vec::new();
        let mut names = Vec::new();
        for (source, values) in &self.sources {
            for series in &self.chart.series {
                let (variant, labels) = self.place(series)?;
                let Some(page) = values.page(variant, &labels) else { continue };
                names.push(series.name.clone());
                let row = names.len() as f64;
                let events: [(&str, f64, Count); 2] = [
                    ("packet lost on the air", 0.13, |sample| sample.radio_lost),
                    ("acknowledgement marked", -0.13, |sample| sample.marked),
                ];
                for (hue, (name, aside, count)) in events.into_iter().enumerate() {
                    let points =
                        rises(page, count).into_iter().map(|at| (at, row + aside)).collect();
                    let source = *source;
                    let hue = if hue == 0 { 1 } else { 3 };
                    curves.push(Curve {
                        name: name.to_owned(),
                        hue,
                        source,
                        points,
                        joined: false,
                        marked: true,
                    });
                }
            }
        }
        if curves.is_empty() {
            return Err("no run has a page's samples".to_owned());
        }
        Ok(Trace {
            description: self.description.clone(),
            x_title: "Time since the page was asked for".to_owned(),
            x_quantity: Quantity::Duration,
            x_from_zero: true,
            x_up_to: 0.0,
            panels: vec![Panel {
                title: self.chart.x.clone(),
                quantity: Quantity::Count,
                from_zero: false,
                up_to: 0.0,
                names,
                curves,
                rules: Vec::new(),
            }],
        })
    }

    /// One curve for each series and source that has it.
    fn curves(
        &self,
        of: impl Fn(&Values, &Series) -> Result<Option<Vec<(f64, f64)>>, String>,
    ) -> Result<Vec<Curve>, String> {
        let mut curves = Vec::new();
        for (source, values) in &self.sources {
            for (hue, series) in self.chart.series.iter().enumerate() {
                if let Some(points) = of(values, series)? {
                    let name = series.name.clone();
                    curves.push(Curve {
                        name,
                        hue,
                        source: *source,
                        points,
                        joined: true,
                        marked: false,
                    });
                }
            }
        }
        if curves.is_empty() { Err("its runs keep no records".to_owned()) } else { Ok(curves) }
    }

    fn place(
        &self,
        series: &Series,
    ) -> Result<(midspan_scenario::record::Variant, Labels), String> {
        let (_, labels) = place(&[&self.chart.at, &series.at])?;
        Ok((variant_named(&series.variant)?, labels))
    }
}

/// Delay and share of packets in per cent: every hundredth, where a record has that, else its few percentiles and its
/// greatest.
fn distribution(packets: &DirectionRecord) -> Option<Vec<(f64, f64)>> {
    let delay = packets.delay?;
    let few =
        [(delay.p50_us, 50.0), (delay.p95_us, 95.0), (delay.p99_us, 99.0), (delay.max_us, 100.0)];
    let all = packets
        .delay_percentiles_us
        .iter()
        .zip(1..)
        .map(|(micros, share)| (*micros, f64::from(share)));
    let points: Vec<(f64, f64)> =
        if packets.delay_percentiles_us.is_empty() { few.to_vec() } else { all.collect() };
    Some(points.into_iter().map(|(micros, share)| (micros / 1e6, share)).collect())
}

/// When a count went up.
fn rises(page: &PageRecord, count: Count) -> Vec<f64> {
    let before = std::iter::once(0).chain(page.samples.iter().map(count));
    let risen = page.samples.iter().zip(before).filter(|(sample, before)| count(sample) > *before);
    risen.map(|(sample, _)| sample.at_s).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_scenario::record::DelayRecord;

    #[test]
    fn a_distribution_has_every_hundredth_that_a_record_has_or_its_few_percentiles() {
        assert_eq!(distribution(&DirectionRecord::default()), None);
        let delay =
            DelayRecord { mean_us: 60.0, p50_us: 50.0, p95_us: 95.0, p99_us: 99.0, max_us: 120.0 };
        let few = DirectionRecord { delay: Some(delay), ..DirectionRecord::default() };
        let drawn = distribution(&few).unwrap();
        assert_eq!((drawn.len(), drawn[0], drawn[3]), (4, (50e-6, 50.0), (120e-6, 100.0)));
        let delay_percentiles_us = (1..=100).map(f64::from).collect();
        let drawn = distribution(&DirectionRecord { delay_percentiles_us, ..few }).unwrap();
        assert_eq!((drawn.len(), drawn[0], drawn[99]), (100, (1e-6, 1.0), (100e-6, 100.0)));
    }
}
