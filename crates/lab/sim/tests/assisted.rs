//! NATCP and NACubic in virtual time, told by NetAssist of a synthetic cellular link.

use midspan_assist_proto::Target;
use midspan_path::{CellularSpec, Trace, Traces};
use midspan_scenario::record::{CutRecord, Measurement, Variant};
use midspan_scenario::{CellSpec, Direction, Scenario};
use midspan_sim::{Error, run};
use midspan_units::{Rate, Span};

/// 10 ms in all, 150 KB of queue before a link that swings around 8 Mbit/s.
fn cell(control: &str, assist: &str, flows: u32) -> CellSpec {
    let text = format!(
        r#"
        name = "assisted"
        title = "Assisted"
        variants = ["none"]
        [path.access]
        down = [{{ trace = {{ file = "down", queue = {{ bytes = "150 KB" }} }} }}, {{ delay = "4 ms" }}]
        up = [{{ delay = "4 ms" }}]
        [path.wide]
        down = [{{ delay = "1 ms" }}]
        up = [{{ delay = "1 ms" }}]
        [hosts]
        server = {{ congestion_control = "{control}" }}
        mec = {{ congestion_control = "{control}" }}
        [assist]
        {assist}
        [workload]
        kind = "bulk"
        direction = "download"
        time = "60 s"
        flows = {flows}
        "#
    );
    Scenario::parse(&text, "assisted.toml").unwrap().cells()[0].spec.clone()
}

fn traces() -> Traces {
    let spec = CellularSpec { mean: Rate::from_bps(8_000_000), ..CellularSpec::default() };
    Traces::from([("down".to_owned(), spec.generate())])
}

fn measure(control: &str, assist: &str, flows: u32) -> Measurement {
    run(&cell(control, assist, flows), Variant::None, &traces(), 1).unwrap().0
}

/// Mean queueing delay in seconds.
fn delay(run: &Measurement) -> f64 {
    run.queueing(Direction::Download).unwrap().mean_us / 1e6
}

fn power(run: &Measurement) -> f64 {
    run.bulk().unwrap().goodput_bps / delay(run)
}

#[test]
fn feedback_keeps_the_queue_short_at_nearly_full_throughput() {
    let cubic = measure("cubic", "feedback = 'none'", 1);
    assert_eq!(cubic.feedback, None);
    for control in ["natcp", "nacubic"] {
        let oracle = measure(control, "feedback = 'oracle'", 1);
        let causal = measure(control, "feedback = 'causal'", 1);
        assert!(
            oracle.bulk().unwrap().goodput_bps > 0.9 * cubic.bulk().unwrap().goodput_bps,
            "{control}"
        );
        assert!(
            causal.bulk().unwrap().goodput_bps > 0.8 * cubic.bulk().unwrap().goodput_bps,
            "{control}"
        );
        // What comes is better to know than what was, and either than nothing.
        let ratios = [power(&oracle) / power(&causal), power(&causal) / power(&cubic)];
        assert!(ratios[0] > 1.1 && ratios[1] > 5.0, "{control}: {ratios:?}");
    }
}

#[test]
fn without_feedback_they_are_their_base_control() {
    let cubic = delay(&measure("cubic", "feedback = 'none'", 1));
    for control in ["natcp", "nacubic"] {
        let alone = delay(&measure(control, "feedback = 'none'", 1));
        assert!((0.7..1.4).contains(&(alone / cubic)), "{control}: {alone} against {cubic}");
    }
}

#[test]
fn every_window_is_told_once_a_period() {
    let run = measure("natcp", "feedback = 'causal'\nperiod = '20 ms'", 1);
    let feedback = run.feedback.unwrap();
    assert_eq!(feedback.missing, 0);
    let windows = Span::from_secs(60).as_nanos() / Span::from_millis(20).as_nanos();
    assert!(feedback.readings.abs_diff(windows) <= 2, "{feedback:?}");
    assert!(feedback.used.abs_diff(windows) <= windows / 20, "{feedback:?}");
}

/// Jain's index of two flows' goodputs.
#[test]
fn two_flows_share_the_ues_link_evenly() {
    let run = measure("natcp", "feedback = 'oracle'", 2);
    let [a, b] = run.bulk().unwrap().flows_bps[..] else { panic!("two flows") };
    let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
    assert!(jain > 0.98, "{jain}: {a} and {b}");
}

/// Each paces at its part: their windows do not open into the queue together.
#[test]
fn two_flows_make_little_more_of_a_queue_than_one() {
    for control in ["natcp", "nacubic"] {
        let of = |flows| delay(&measure(control, "feedback = 'oracle'", flows));
        let (one, two) = (of(1), of(2));
        assert!(two < 1.25 * one, "{control}: {two} and {one}");
    }
}

#[test]
fn a_scenario_that_says_nothing_wants_what_an_agent_wants_by_default() {
    let spec = cell("natcp", "feedback = 'causal'", 1);
    let assist = spec.assisted().unwrap();
    let Target { standing_queue, pace_percent } = Target::default();
    assert_eq!((assist.standing_queue, assist.pace_percent), (standing_queue, pace_percent));
}

#[test]
fn the_relays_client_leg_is_told_too() {
    let of = |control: &str, feedback: &str| {
        let mut spec = cell(control, &format!("feedback = '{feedback}'\nagent = 'mec'"), 1);
        spec.relay.client_leg.congestion_control = Some(control.to_owned());
        run(&spec, Variant::Midspan, &traces(), 1).unwrap().0
    };
    let (cubic, natcp) = (of("cubic", "none"), of("natcp", "causal"));
    assert!(natcp.bulk().unwrap().goodput_bps > 0.8 * cubic.bulk().unwrap().goodput_bps);
    assert!(delay(&natcp) < delay(&cubic) / 4.0, "{} {}", delay(&natcp), delay(&cubic));
}

#[test]
fn a_standing_queue_uses_the_link_better() {
    let of = |more: &str| measure("natcp", &format!("feedback = 'causal'\n{more}"), 1);
    let paper = of("standing_queue = '0 s'\npace_percent = 100");
    let standing = of("standing_queue = '50 ms'\npace_percent = 125");
    assert!(standing.bulk().unwrap().goodput_bps > 1.03 * paper.bulk().unwrap().goodput_bps);
    assert!((1.5..10.0).contains(&(delay(&standing) / delay(&paper))));
}

#[test]
fn while_feedback_is_cut_the_flow_goes_on_and_afterwards_the_queue_is_short_again() {
    let cuts = "cuts = { every = '6 s', length = '2 s' }";
    let of = |control: &str, feedback: &str| {
        measure(control, &format!("feedback = '{feedback}'\n{cuts}"), 1)
            .bulk()
            .unwrap()
            .cuts
            .clone()
    };
    let (cubic, natcp) = (of("cubic", "none"), of("natcp", "causal"));
    let starts: Vec<f64> = natcp.iter().map(|cut| cut.from_s).collect();
    assert_eq!(starts, (1..=9).map(|number| f64::from(6 * number)).collect::<Vec<_>>());
    let goodput = |cuts: &[CutRecord]| cuts.iter().map(|cut| cut.goodput_bps).sum::<f64>();
    assert!(goodput(&natcp) > 0.9 * goodput(&cubic));
    let after = |cuts: &[CutRecord]| cuts.iter().filter_map(CutRecord::after95_s).sum::<f64>();
    assert!(after(&natcp) < after(&cubic) / 3.0, "{} {}", after(&natcp), after(&cubic));
    let during = natcp.iter().filter_map(CutRecord::during95_s).sum::<f64>();
    assert!(during > after(&natcp), "{during} {}", after(&natcp));
    assert_eq!(measure("natcp", "feedback = 'causal'", 1).bulk().unwrap().cuts, []);
}

#[test]
fn what_is_not_simulated_is_refused() {
    let spec = cell("natcp", "feedback = 'causal'\nway = 'in-band'", 1);
    assert_eq!(run(&spec, Variant::None, &traces(), 1).unwrap_err(), Error::InBand);
    let spec = cell("natcp", "feedback = 'causal'", 1);
    let other = Traces::from([("other".to_owned(), Trace::parse(b"1\n").unwrap())]);
    assert!(run(&spec, Variant::None, &other, 1).is_err());
}
