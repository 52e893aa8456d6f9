//! The scenario file of figures and candidates: what `midspan lab run` would run as well.

use std::fmt::Write as _;

use midspan_scenario::Direction;
use midspan_units::{ByteSize, Rate, Share};

use crate::candidate::{Candidate, Tried};
use crate::figures::{Figures, Flows, HostBuffers};

/// The axis of flows.
pub(crate) const FLOW: &str = "flow";
/// The axis of candidates.
pub(crate) const CANDIDATE: &str = "candidate";

/// Bytes of a run's transfers together, as far as one is not more.
const TRANSFERRED: u64 = 4_000_000;
/// Transfers of a run, at most.
const MOST_TRANSFERS: u64 = 20;

/// The file's text. Without a relay its settings do not matter, so that is run once for each place.
pub(crate) fn text(
    figures: &Figures,
    tried: &Tried,
    candidates: &[Candidate],
    seed: u64,
    seeds: u32,
) -> String {
    let mut text = head(figures, seed, seeds);
    let Figures { direction, .. } = figures;
    let radio = |is_data: bool| {
        let mut elements = vec![rate(figures.rate, figures)];
        if is_data && figures.loss > Share::ZERO {
            elements.push(format!("{{ loss = {{ share = \"{}\" }} }}", figures.loss));
        }
        if is_data && figures.late > Share::ZERO {
            let (share, by) = (figures.late, figures.late_by);
            elements.push(format!("{{ late = {{ share = \"{share}\", by = \"{by}\" }} }}"));
        }
        elements.push("{ delay = \"$candidate.access\" }".to_owned());
        elements.join(", ")
    };
    let wide = figures.wide_rate.map(|wide| rate(wide, figures)).into_iter();
    let wide = wide.chain(["{ delay = \"$candidate.wide\" }".to_owned()]).collect::<Vec<_>>();
    let wide = wide.join(", ");
    let (up, down) =
        (radio(*direction == Direction::Upload), radio(*direction == Direction::Download));
    let buffers = match figures.host_buffers {
        HostBuffers::Default => "default",
        HostBuffers::Max => "max",
    };
    let host = |name: &str, control: &str| {
        format!("{name} = {{ congestion_control = \"{control}\", buffers = \"{buffers}\" }}")
    };
    let _ = write!(
        text,
        "\n[path.access]\nup = [{up}]\ndown = [{down}]\n\n[path.wide]\nup = [{wide}]\ndown = [{wide}]\n\n[hosts]\n{}\n{}\n{}\n",
        host("ue", &figures.ue_control),
        host("mec", &tried.host_control),
        host("server", &figures.server_control),
    );
    let _ = write!(
        text,
        "\n[relay]\nbuffer = \"$candidate.buffer\"\nreordering_hold = \"{}\"\nclient_leg = {{ congestion_control = \"$candidate.control\" }}\n",
        tried.reordering_hold
    );
    workload(&mut text, figures);
    sweep(&mut text, figures, candidates);
    text
}

fn head(figures: &Figures, seed: u64, seeds: u32) -> String {
    let title = match figures.direction {
        Direction::Upload => "Uploads with and without a relay, by its place and settings",
        Direction::Download => "Downloads with and without a relay, by its place and settings",
    };
    format!(
        "name = \"advise\"\ntitle = \"{title}\"\nseed = {seed}\nrepetitions = {seeds}\nvariants = [\"none\", \"midspan\"]\n\
         notes = [\"Made by `midspan advise`, which runs a part of it: all candidates with the first seeds, the chosen one with the others. \
         `midspan lab run FILE --backend sim` runs all of it.\"]\n"
    )
}

fn rate(rate: Rate, figures: &Figures) -> String {
    let queue = figures.queue_of(rate);
    format!("{{ rate = {{ rate = \"{rate}\", queue = {{ bytes = \"{queue}\" }} }} }}")
}

fn workload(text: &mut String, figures: &Figures) {
    let direction = match figures.direction {
        Direction::Upload => "upload",
        Direction::Download => "download",
    };
    let rest = match figures.flows {
        Flows::Sizes(_) => {
            "kind = \"transfer\"\nsize = \"$flow.size\"\ncount = \"$flow.count\"\nlimit = \"24 h\""
        }
        Flows::Times(_) => "kind = \"bulk\"\ntime = \"$flow.time\"\nwarmup = \"$flow.warmup\"",
    };
    let _ = write!(text, "\n[workload]\ndirection = \"{direction}\"\n{rest}\n");
}

fn sweep(text: &mut String, figures: &Figures, candidates: &[Candidate]) {
    let flows: Vec<String> = match &figures.flows {
        Flows::Sizes(sizes) => sizes
            .iter()
            .map(|size| {
                let count = transfers(*size);
                format!("{{ label = \"{size}\", size = \"{size}\", count = {count} }}")
            })
            .collect(),
        Flows::Times(times) => times
            .iter()
            .map(|time| {
                let warmup = *time / 4;
                format!("{{ label = \"{time}\", time = \"{time}\", warmup = \"{warmup}\" }}")
            })
            .collect(),
    };
    let points = |points: &[String]| {
        points.iter().map(|point| format!("    {point},\n")).collect::<String>()
    };
    let candidate = |candidate: &Candidate| {
        let Candidate { place, control, buffer } = candidate;
        let [access, wide] = [*place, figures.rtt.saturating_sub(*place)].map(|rtt| rtt / 2);
        format!(
            "{{ label = \"{candidate}\", access = \"{access}\", wide = \"{wide}\", control = \"{control}\", buffer = \"{buffer}\" }}"
        )
    };
    let all: Vec<String> = candidates.iter().map(candidate).collect();
    let _ = write!(
        text,
        "\n[sweep]\n{FLOW} = [\n{}]\n{CANDIDATE} = [\n{}]\n",
        points(&flows),
        points(&all)
    );
    let others: Vec<String> = (0..candidates.len())
        .filter(|index| !is_first_of_place(candidates, *index))
        .map(|index| format!("\"{}\"", candidates[index]))
        .collect();
    if !others.is_empty() {
        let _ = write!(
            text,
            "\n[[skip]]\ncell = {{ {CANDIDATE} = [{}] }}\nvariants = [\"none\"]\n\
             because = \"without a relay its settings do not matter\"\n",
            others.join(", ")
        );
    }
}

/// How many transfers of a size a run has.
pub(crate) fn transfers(size: ByteSize) -> u64 {
    (TRANSFERRED / size.as_bytes().max(1)).clamp(1, MOST_TRANSFERS)
}

/// Whether no candidate before is at the same place.
pub(crate) fn is_first_of_place(candidates: &[Candidate], index: usize) -> bool {
    candidates[..index].iter().all(|before| before.place != candidates[index].place)
}

#[cfg(test)]
mod tests {
    use midspan_scenario::record::Variant;
    use midspan_scenario::{Scenario, Workload};
    use midspan_units::Span;
    use proptest::prelude::*;

    use super::*;
    use crate::figures::tests::figures;

    fn parsed(figures: &Figures) -> Scenario {
        let candidates = Tried::default().candidates(figures).unwrap();
        let text = text(figures, &Tried::default(), &candidates, 1, 6);
        Scenario::parse(&text, "advise.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_path_is_as_the_figures_have_it_wherever_the_relay_is() {
        let lossy = Figures {
            loss: "0.5 %".parse().unwrap(),
            late: "1 %".parse().unwrap(),
            late_by: Span::from_millis(10),
            wide_rate: Some("1 Gbit/s".parse().unwrap()),
            ..figures()
        };
        let scenario = parsed(&lossy);
        assert_eq!(scenario.cells().len(), 12);
        for cell in scenario.cells() {
            let path = &cell.spec.path;
            let names = |elements: &[_]| {
                let names: Vec<_> = elements.iter().map(midspan_path_name).collect();
                names.join(" ")
            };
            assert_eq!(names(&path.access.down), "rate loss late delay");
            assert_eq!(names(&path.access.up), "rate delay");
            assert_eq!(path.access.base_rtt() + path.wide.base_rtt(), lossy.rtt);
        }
        let without = scenario.cells().iter().filter(|cell| cell.variants.contains(&Variant::None));
        assert_eq!(without.count(), 3);
    }

    fn midspan_path_name(element: &impl serde::Serialize) -> String {
        let value = serde_json::to_value(element).unwrap();
        value.as_object().unwrap().keys().next().unwrap().clone()
    }

    #[test]
    fn small_transfers_are_many() {
        let size = |bytes| transfers(ByteSize::from_bytes(bytes));
        assert_eq!([size(1), size(1_000_000), size(1 << 40)], [20, 4, 1]);
    }

    proptest! {
        #[test]
        fn figures_that_are_checked_make_a_scenario(
            rtt_us in 20..10_000_000_u64,
            rate in 10_000..10_000_000_000_u64,
            loss in 0.0..0.2,
            upload: bool,
            times: bool,
        ) {
            let flows = match times {
                true => Flows::Times(vec![Span::from_millis(100), Span::from_secs(7)]),
                false => Flows::Sizes(vec![ByteSize::from_bytes(1), ByteSize::from_bytes(123_457)]),
            };
            let figures = Figures {
                rtt: Span::from_micros(rtt_us),
                rate: Rate::from_bps(rate),
                loss: Share::from_fraction(loss),
                direction: if upload { Direction::Upload } else { Direction::Download },
                flows,
                ..figures()
            };
            prop_assert_eq!(figures.check(), Ok(()));
            let scenario = parsed(&figures);
            for cell in scenario.cells() {
                let is_bulk = matches!(cell.spec.workload, Workload::Bulk(_));
                prop_assert_eq!(is_bulk, times);
            }
        }
    }
}
