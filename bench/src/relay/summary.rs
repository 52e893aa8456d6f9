//! What the runs come to: a table for each figure, and what was set as a goal beside what was reached.

use super::contender::Contender;
use super::{Figure, Run};
use crate::statistics::median;

/// A table for each figure: medians, and how often Midspan's is each peer's, from the repetitions'
/// own ratios, with their range. Then the goals.
pub(super) fn of(runs: &[Run]) -> String {
    let mut text = String::new();
    for place in sorted(runs.iter().map(|run| run.place)) {
        let of_place: Vec<&Run> = runs.iter().filter(|run| run.place == place).collect();
        text += &format!("{}\n\n", place.title().to_uppercase());
        text += &of_place_alone(&of_place);
    }
    text + "x: Midspan over that peer, better above 1; median of the repetitions' ratios (least - most).\n\
        CPU: the relay's processor time, what the kernel does in its name included, interrupts not.\n"
}

fn of_place_alone(runs: &[&Run]) -> String {
    let mut text = String::new();
    let figures = sorted(runs.iter().map(|run| run.figure));
    for &figure in &figures {
        text += &format!("{}\n", figure.title());
        let of_figure = || runs.iter().filter(|run| run.figure == figure);
        for contender in sorted(of_figure().map(|run| run.contender)) {
            let own = || of_figure().filter(|run| run.contender == contender);
            let line = match own().find_map(|run| run.failed.as_ref()) {
                Some(reason) => format!("no number: {reason}"),
                None => {
                    let medians: String = (0..)
                        .zip(figure.quantities())
                        .map(|(quantity, (name, _))| {
                            let value = median(own().map(|run| run.values[quantity]).collect());
                            format!("{:>9} {name:<13}", digits(value))
                        })
                        .collect();
                    format!("{medians}  {}", beside(runs, figure, contender))
                }
            };
            let line = format!("  {:<29}{line}", contender.name());
            text += &format!("{}\n", line.trim_end());
        }
        text.push('\n');
    }
    text + &goals(runs, &figures) + "\n"
}

/// One run's values with their names.
pub(super) fn said(figure: Figure, values: &[f64]) -> String {
    let all = figure.quantities().iter().zip(values);
    let all: Vec<String> =
        all.map(|((name, _), value)| format!("{} {name}", digits(*value))).collect();
    all.join(", ")
}

const OWN: [Contender; 2] = [Contender::Midspan, Contender::MidspanTransparent];
/// The settings that goals are set against. What HAProxy does when it splices always has none: it is in the
/// tables.
const HAPROXY: Peers = Peers {
    explicit: [Contender::Haproxy, Contender::HaproxyTuned],
    transparent: [Contender::HaproxyTransparent, Contender::HaproxyTunedTransparent],
};
const NGINX: Peers = Peers {
    explicit: [Contender::Nginx, Contender::NginxTuned],
    transparent: [Contender::NginxTransparent, Contender::NginxTunedTransparent],
};

/// A peer as shipped and as tuned.
#[derive(Debug, Clone, Copy)]
struct Peers {
    /// Connected to, and connecting in its own name.
    explicit: [Contender; 2],
    /// Connecting in the client's name.
    transparent: [Contender; 2],
}

/// Midspan beside this contender, each way of Midspan beside its like where it is another build.
fn beside(runs: &[&Run], figure: Figure, contender: Contender) -> String {
    let own: &[Contender] = match contender {
        Contender::Midspan | Contender::MidspanTransparent => &[],
        Contender::Baseline => &OWN[..1],
        Contender::BaselineTransparent
        | Contender::HaproxyTransparent
        | Contender::HaproxyTunedTransparent
        | Contender::NginxTransparent
        | Contender::NginxTunedTransparent => &OWN[1..],
        _ => &OWN,
    };
    let ratio = |&own| Some((own, Ratio::of(runs, figure, 0, own, contender)?));
    let ratios = own.iter().filter_map(ratio).map(|(own, ratio)| {
        let Ratio { median, least, most } = ratio;
        format!("{}: {median:.2} x ({least:.2} - {most:.2})", own.name())
    });
    ratios.collect::<Vec<_>>().join("; ")
}

/// How often the one's quantity is the other's, repetition by repetition; above 1 is better, whether
/// more of it is or less.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratio {
    median: f64,
    least: f64,
    most: f64,
}

impl Ratio {
    /// None if either has no number.
    fn of(
        runs: &[&Run],
        figure: Figure,
        quantity: usize,
        one: Contender,
        other: Contender,
    ) -> Option<Ratio> {
        let of = |contender| {
            runs.iter().filter(move |run| run.figure == figure && run.contender == contender)
        };
        if of(one).chain(of(other)).any(|run| run.failed.is_some()) {
            return None;
        }
        let ratios: Vec<f64> = of(one)
            .filter_map(|run| {
                let beside = of(other).find(|beside| beside.repetition == run.repetition)?;
                let ratio = run.values[quantity] / beside.values[quantity];
                Some(if figure.quantities()[quantity].1 { ratio } else { 1.0 / ratio })
            })
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (!ratios.is_empty()).then(|| Ratio { median: median(ratios), least, most })
    }
}

/// What was set as a goal: a figure's quantity against some peers, of which the strongest counts.
struct Goal {
    figure: Figure,
    quantity: usize,
    peers: &'static [Peers],
    than: &'static str,
    at_least: f64,
}

const GOALS: [Goal; 12] = {
    const fn goal(
        figure: Figure,
        quantity: usize,
        peers: &'static [Peers],
        than: &'static str,
        at_least: f64,
    ) -> Goal {
        Goal { figure, quantity, peers, than, at_least }
    }
    const BOTH: &[Peers] = &[HAPROXY, NGINX];
    const BETTER: &str = "the better of the two";
    [
        goal(Figure::Bulk1, 0, BOTH, BETTER, 1.0),
        goal(Figure::Bulk1, 1, BOTH, BETTER, 1.0),
        goal(Figure::Bulk16, 0, BOTH, BETTER, 1.0),
        goal(Figure::Bulk16, 1, BOTH, BETTER, 1.0),
        goal(Figure::Connections, 0, BOTH, BETTER, 1.1),
        goal(Figure::Connections, 1, BOTH, BETTER, 1.0),
        goal(Figure::Kept8, 0, BOTH, BETTER, 1.2),
        goal(Figure::Kept8, 3, BOTH, BETTER, 1.0),
        goal(Figure::Kept64, 0, BOTH, BETTER, 1.2),
        goal(Figure::Kept64, 3, BOTH, BETTER, 1.0),
        goal(Figure::Http2, 0, BOTH, BETTER, 1.0),
        goal(Figure::Idle, 0, &[HAPROXY], "HAProxy", 2.0),
    ]
};

fn goals(runs: &[&Run], figures: &[Figure]) -> String {
    let mut text =
        String::from("goals, against the stronger of each peer as shipped and as tuned\n");
    let explicit: fn(&Peers) -> [Contender; 2] = |peers| peers.explicit;
    let transparent: fn(&Peers) -> [Contender; 2] = |peers| peers.transparent;
    let pairs = [
        (Contender::Midspan, explicit),
        (Contender::MidspanTransparent, explicit),
        (Contender::MidspanTransparent, transparent),
    ];
    for goal in GOALS.iter().filter(|goal| figures.contains(&goal.figure)) {
        for (own, peers) in pairs {
            let ratios = goal.peers.iter().flat_map(peers).filter_map(|peer| {
                Some((peer, Ratio::of(runs, goal.figure, goal.quantity, own, peer)?))
            });
            let least = ratios.min_by(|a, b| a.1.median.total_cmp(&b.1.median));
            let Some((peer, ratio)) = least else { continue };
            let met = if ratio.median >= goal.at_least { "met" } else { "not met" };
            text += &format!(
                "  {:<32}{:<22}{:<22}{:.2} x {} ({}), of {:.2} x: {met}\n",
                goal.figure.title(),
                goal.figure.quantities()[goal.quantity].0,
                own.name(),
                ratio.median,
                goal.than,
                peer.name(),
                goal.at_least,
            );
        }
    }
    text
}

fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort();
    all.dedup();
    all
}

fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}
