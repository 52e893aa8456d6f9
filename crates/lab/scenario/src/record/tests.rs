use midspan_path::Times;
use midspan_units::Span;
use proptest::prelude::*;

use super::*;
use crate::CutTimes;

fn measured() -> Record {
    let link = LinkRecord {
        link: "access".into(),
        lateness: LatenessRecord {
            count: 9,
            p50_us: 35.5,
            p99_us: 84.0,
            p999_us: 120.0,
            max_us: 2000.0,
        },
        unintended_drops: 0,
        up: DirectionRecord {
            packets_in: 1000,
            packets_out: 995,
            bytes_out: 1_492_500,
            dropped: BTreeMap::from([("loss".into(), 5)]),
            marked: 0,
            delay: Some(DelayRecord { mean_us: 1.5, ..DelayRecord::default() }),
            delay_percentiles_us: vec![0.5, 1.5],
        },
        down: DirectionRecord::default(),
    };
    let leg = LegRecord {
        host: "ue".into(),
        leg: "client".into(),
        congestion_control: "cubic".into(),
        rtt_us: 1100,
        min_rtt_us: 1000,
        cwnd: 90,
        retransmits: 5,
        bytes_acked: 1_400_000,
        bytes_received: 0,
        delivery_rate_bps: 5.5e8,
        dsack_dups: 0,
        reord_seen: 0,
        busy: None,
    };
    Record {
        schema: SCHEMA,
        scenario: "mec-3a".into(),
        digest: "0123456789abcdef".into(),
        backend: Backend::Live,
        cell: BTreeMap::from([("loss".into(), "0.5 %".into())]),
        variant: Variant::Midspan,
        repetition: 2,
        seed: u64::MAX,
        started_unix_ms: 1_700_000_000_000,
        outcome: Outcome::Measured(Measurement {
            measured_s: 6.0,
            sender_retransmits: 5,
            workload: WorkloadRecord::Bulk(BulkRecord {
                goodput_bps: 5.25e8,
                acknowledged_bps: 5.5e8,
                flows_bps: vec![5.25e8],
                held: Some(DelayRecord { mean_us: 5e5, ..DelayRecord::default() }),
                cuts: vec![cut_record()],
                series: None,
            }),
            legs: vec![leg],
            links: vec![link],
            feedback: Some(FeedbackRecord { used: 9, ..FeedbackRecord::default() }),
        }),
    }
}

fn of_workload(workload: WorkloadRecord) -> Record {
    let Outcome::Measured(run) = measured().outcome else { unreachable!() };
    of_outcome(Outcome::Measured(Measurement { workload, ..run }))
}

/// One of each kind but flows.
fn of_transfers() -> [Record; 3] {
    let transfers = vec![TransferRecord {
        bytes: 1000,
        connected_s: 0.05,
        acknowledged_s: 0.1,
        closed_s: 0.15,
        received_s: 0.075,
    }];
    let pages = vec![PageRecord { document_s: 0.05, objects_s: vec![0.02], samples: Vec::new() }];
    let videos = vec![VideoRecord { start_s: None, stalls: 2, stalled_s: 0.5 }];
    [
        WorkloadRecord::Transfers(transfers.clone()),
        WorkloadRecord::Pages { transfers: transfers.clone(), pages },
        WorkloadRecord::Videos { transfers, videos },
    ]
    .map(of_workload)
}

/// 2 s from 10 s on, over which 250 KB come in, and nothing between 10.5 s and 11.2 s.
fn cut_record() -> CutRecord {
    let at = |millis| Span::from_millis(millis);
    let cut = CutTimes {
        before: at(9_000),
        start: at(10_000),
        late: at(11_000),
        end: at(12_000),
        after: at(12_150),
        last: at(13_150),
    };
    let mut watch = CutWatch::start(cut.start, 7_000);
    for (when, received) in
        [(10_100, 50_000), (10_500, 90_000), (11_000, 90_000), (11_200, 91_000), (12_000, 257_000)]
    {
        watch.look(at(when), received);
    }
    let (mut during, mut after) = (Times::new(), Times::new());
    during.record(at(50));
    after.record(at(20));
    watch.record(&cut, &Times::new(), &during, &after)
}

#[test]
fn a_cut_is_followed_from_its_start_to_its_end() {
    let record = cut_record();
    assert_eq!((record.from_s, record.goodput_bps), (10.0, 1_000_000.0));
    assert_eq!(record.silence_s, 0.8);
    assert_eq!(record.before95_s(), None);
    assert!((0.049..0.051).contains(&record.during95_s().unwrap()));
    assert!((0.019..0.021).contains(&record.after95_s().unwrap()));
}

fn of_outcome(outcome: Outcome) -> Record {
    Record { outcome, ..measured() }
}

fn untrusted() -> Record {
    of_outcome(Outcome::Untrusted { reason: "3 packets dropped".into(), links: Vec::new() })
}

fn failed() -> Record {
    of_outcome(Outcome::Failed { reason: "the relay did not start".into() })
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).unwrap() + "\n"
}

#[test]
fn every_outcome_round_trips_on_one_line() {
    let [transfers, pages, videos] = of_transfers();
    let records = [measured(), transfers, pages, videos, untrusted(), failed()];
    let text: String = records.iter().map(line).collect();
    assert_eq!(text.lines().count(), 6);
    assert_eq!(parse_lines(&text, "r.jsonl").unwrap(), records);
}

/// Files hold the keys of all workloads side by side.
#[test]
fn what_no_workload_comes_to_is_refused() {
    let [transfers, pages, videos] = of_transfers().map(|record| line(&record));
    let refused = |text: String| parse_lines(&text, "r.jsonl").unwrap_err().to_string();
    let refusal = refused(transfers.replace(r#""goodput_bps":0.0"#, r#""goodput_bps":1.0"#));
    assert!(refusal.ends_with("a run of transfers has no flows with rates"), "{refusal}");
    let (_, its_pages) = pages.split_once(r#""pages""#).unwrap();
    let (its_pages, _) = its_pages.split_once(r#","legs""#).unwrap();
    let both = videos.replace(r#""videos""#, &format!(r#""pages"{its_pages},"videos""#));
    let refusal = refused(both);
    assert!(refusal.ends_with("a run has pages or videos, not both"), "{refusal}");
}

#[test]
fn a_measurement_has_its_keys_in_their_order() {
    let [transfers, ..] = of_transfers();
    let text = line(&transfers);
    let (_, text) = text.split_once(r#""outcome":"#).unwrap();
    let begin = r#""measured","goodput_bps":0.0,"acknowledged_bps":0.0,"measured_s":6.0,"sender_retransmits":5,"flows_bps":[],"transfers":[{"bytes":1000,"#;
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains(r#"}],"legs":[{"#) && text.contains(r#"}],"feedback":{"#), "{text}");
}

#[test]
fn the_documented_shape() {
    let text = line(&failed());
    assert_eq!(
        text.trim_end(),
        r#"{"schema":5,"scenario":"mec-3a","digest":"0123456789abcdef","backend":"live","#
            .to_owned()
            + r#""cell":{"loss":"0.5 %"},"variant":"midspan","repetition":2,"#
            + r#""seed":18446744073709551615,"started_unix_ms":1700000000000,"#
            + r#""outcome":"failed","reason":"the relay did not start"}"#
    );
}

#[test]
fn a_pages_median_rate_is_over_the_samples_that_have_one() {
    let page = |rates: &[Option<f64>]| PageRecord {
        document_s: 1.0,
        objects_s: Vec::new(),
        samples: rates
            .iter()
            .map(|&rate_bps| PageSample {
                at_s: 0.0,
                rate_bps,
                policed: 2,
                radio_lost: 0,
                marked: 0,
            })
            .collect(),
    };
    assert_eq!(page(&[Some(3.0), None, Some(1.0), Some(2.0)]).median_rate_bps(), Some(2.0));
    assert_eq!(page(&[Some(3.0), Some(1.0)]).median_rate_bps(), Some(2.0));
    assert_eq!(page(&[None]).median_rate_bps(), None);
    assert_eq!((page(&[None]).policed(), page(&[]).policed()), (2, 0));
}

/// Of three flows two have the same and one nothing: 4 / (3 x 2).
#[test]
fn fairness_is_jains() {
    let of = |flows: &[f64]| {
        BulkRecord { flows_bps: flows.to_vec(), ..BulkRecord::default() }.fairness()
    };
    assert_eq!(of(&[5.0, 5.0, 0.0]), Some(4.0 / 6.0));
    assert_eq!((of(&[5.0, 5.0]), of(&[5.0]), of(&[0.0, 0.0])), (Some(1.0), None, None));
}

#[test]
fn a_user_is_satisfied_up_to_each_bound() {
    assert!(video_of((Some(7.9), 3, 2.0)).satisfies());
    for video in [(None, 0, 0.0), (Some(8.0), 0, 0.0), (Some(1.0), 4, 1.0), (Some(1.0), 1, 2.1)] {
        assert!(!video_of(video).satisfies(), "{video:?}");
    }
}

fn video_of((start_s, stalls, stalled_s): (Option<f64>, u32, f64)) -> VideoRecord {
    VideoRecord { start_s, stalls, stalled_s }
}

#[test]
fn errors_name_the_line() {
    let error = |text: &str| parse_lines(text, "r.jsonl").unwrap_err().to_string();
    let good = line(&failed());
    let newer = good.replacen("\"schema\":5", "\"schema\":6", 1);
    assert_eq!(
        error(&format!("{good}\n{newer}")),
        "r.jsonl:3: a record of schema 6; this version reads schemas 1 to 5"
    );
    assert_eq!(
        error(&format!("{good}{{}}\n")),
        "r.jsonl:2: not a result record: no `schema`, which is 5"
    );
    let cut = &good[..good.len() / 2];
    assert!(error(cut).starts_with("r.jsonl:1: not a result record, which is one JSON object:"));
    let lacking = good.replacen("\"seed\":18446744073709551615,", "", 1);
    assert_eq!(error(&lacking), "r.jsonl:1: not a result record: missing field `seed`");
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = parse_lines(&text, "r.jsonl");
    }
}

#[test]
fn every_hundredth_of_the_delays_is_there_if_it_is_wanted() {
    let mut delays = Times::new();
    (1..=1000).for_each(|micros| delays.record(Span::from_micros(micros)));
    let with = |percentiles| DirectionRecord::default().with_delays(&delays, percentiles);
    assert_eq!(with(false).delay_percentiles_us, Vec::<f64>::new());
    let percentiles = with(true).delay_percentiles_us;
    assert_eq!(percentiles.len(), 100);
    assert!(percentiles.is_sorted());
    let delay = with(true).delay.unwrap();
    assert_eq!((percentiles[49], percentiles[94]), (delay.p50_us, delay.p95_us));
    assert_eq!(percentiles[99], delay.max_us);
    let nothing = DirectionRecord::default().with_delays(&Times::new(), true);
    assert_eq!(nothing, DirectionRecord::default());
}
