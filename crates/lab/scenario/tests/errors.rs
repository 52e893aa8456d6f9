//! What is wrong in a file is refused with its line and with what would be right.

use midspan_scenario::Scenario;

/// A good file; each test spoils it in one place. Lines are counted in the comments.
const GOOD: &str = r#"name = "good"
title = "A file without faults"
repetitions = 2
variants = ["none", "midspan"]

[path.access]
up = [
    { rate = { rate = "1 Gbit/s", queue = { bytes = "6250 KB" } } },
    { loss = { share = "$loss", unit = "packet" } },
    { delay = "$rtt.access" },
]
down = [{ delay = "$rtt.access" }]

[path.wide]
up = [{ delay = "$rtt.wide" }]
down = [{ delay = "$rtt.wide" }]

[hosts.ue]
congestion_control = "cubic"
buffers = { rmem = "4096 131072 6291456", wmem = "4096 16384 4194304" }

[relay.client_leg]
congestion_control = "bbr"

[workload]
kind = "bulk"
direction = "upload"
time = "2 s"
warmup = "500 ms"

[service]
at = "server"

[sweep]
loss = ["0 %", "0.5 %", "1 %"]
rtt = [
    { label = "near", access = "0.5 ms", wide = "24.5 ms" },
    { label = "far", access = "2.5 ms", wide = "22.5 ms" },
]

[short]
repetitions = 1
workload = { time = "1 s" }
sweep = { loss = ["0.5 %"] }

[[skip]]
cell = { loss = ["1 %"], rtt = ["far"] }
because = "there must be one"

[[reported]]
cell = { loss = "0.5 %" }
variants = ["midspan"]
gain = 77.6
"#;

/// The error of [`GOOD`] with the first `from` replaced by `to`.
#[track_caller]
fn spoilt(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    match Scenario::parse(&GOOD.replacen(from, to, 1), "x.toml") {
        Ok(_) => panic!("{to} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_good_file_is_good() {
    let scenario = Scenario::parse(GOOD, "x.toml").unwrap();
    assert_eq!(scenario.cells().len(), 5);
    assert_eq!(scenario.short().unwrap().cells().len(), 2);
}

#[test]
fn broken_toml() {
    let error = spoilt("kind = \"bulk\"", "kind = \"bulk");
    assert!(error.starts_with("x.toml:26: "), "{error}");
    let error = spoilt("[service]", "[workload]");
    assert_eq!(error, "x.toml:31: duplicate key");
}

#[test]
fn impossible_cells() {
    let with = |cells: &str| spoilt("[service]", &format!("[cells]\n{cells}\n[service]"));
    assert!(with("users = 0").contains("there can be from 1 in each of 7 cells to 20000"));
    assert!(with("users = 3000").starts_with("x.toml:32: 21000 users in all"));
    assert!(with("users = 1\nservers = 8").starts_with("x.toml:33: 8 servers"));
    assert!(with("users = 1\nlinks = 0").starts_with("x.toml:33: 0 links"));
    assert!(with("users = 1\nradio = { buffer = '1 B' }").contains("`1500 B` or more"));
    assert!(with("users = 1\nradio = { distance = '1 m' }").contains("from 70 m to 20 km"));
    assert!(with("users = 1\nradio = { averaging = '1 ms' }").contains("`10 ms` to `10 s`"));
    assert!(with("users = 1\nclients = 'some'").contains("`all`, `users`, `others`"));
    assert!(with("users = 1\nsplit = 'sgw'").contains("`gateway`, `enb`, `both`"));
    let others = |workload: &str| {
        with(&format!("users = 1\nothers = [{{ users = 1, workload = {{ {workload} }} }}]"))
    };
    assert!(others("direction = 'download'").contains("`kind` is missing from the workload"));
    assert!(others("kind = 'bulk', direction = 'download', time = '0 s'").contains("no time"));
    let transfer = "kind = 'transfer', direction = 'download', size = '1 B'";
    assert!(others(transfer).contains("users of cells run"), "{}", others(transfer));
}

#[test]
fn unknown_keys() {
    assert_eq!(
        spoilt("repetitions", "repetition"),
        "x.toml:3: unknown key `repetition`; did you mean `repetitions`? Known here: `name`, \
         `title`, `figure`, `notes`, `seed`, `repetitions`, `verdict`, `variants`, `compare`, `traces`, `reported`, \
         `skip`, `path`, `cells`, `hosts`, `relay`, `assist`, `workload`, `service`, `sweep`, `short`"
    );
    assert_eq!(
        spoilt("unit = \"packet\"", "unti = \"packet\""),
        "x.toml:9: unknown key `unti`; did you mean `unit`? Known here: `share`, `unit`"
    );
    assert_eq!(
        spoilt("bytes =", "size ="),
        "x.toml:8: unknown key `size`; known here: `bytes`, `packets`"
    );
    assert_eq!(
        spoilt("warmup =", "warm_up ="),
        "x.toml:29: unknown key `warm_up`; did you mean `warmup`? Known here: `direction`, `time`, \
         `warmup`, `flows`, `stagger`, `controls`, `greeting`, `percentiles`, `series`"
    );
    assert_eq!(
        spoilt("[hosts.ue]", "[hosts.eu]"),
        "x.toml:18: unknown key `eu`; did you mean `ue`? Known here: `ue`, `mec`, `server`"
    );
    assert_eq!(
        spoilt("wmem", "wmen"),
        "x.toml:20: unknown key `wmen`; did you mean `wmem`? Known here: `rmem`, `wmem`"
    );
    assert_eq!(
        spoilt("[short]\nrepetitions = 1", "[short]\nrepeat = 1"),
        "x.toml:42: unknown key `repeat`; known here: `repetitions`, `variants`, `sweep`, \
         `workload`"
    );
}

#[test]
fn unknown_values() {
    assert_eq!(
        spoilt("{ loss = {", "{ lost = {"),
        "x.toml:9: unknown value `lost`; did you mean `loss`? Known here: `rate`, `delay`, `loss`, \
         `gilbert-elliott`, `late`, `rlc`, `trace`, `policer`, `radio`, `wla`, `mmwave`, \
         `external`"
    );
    assert_eq!(
        spoilt("\"upload\"", "\"up\""),
        "x.toml:27: unknown value `up`; known here: `upload`, `download`"
    );
    assert_eq!(
        spoilt("\"bulk\"", "\"bluk\""),
        "x.toml:26: unknown value `bluk`; did you mean `bulk`? Known here: `bulk`, `transfer`, `page`, `video`"
    );
    assert_eq!(
        spoilt("\"none\", \"midspan\"", "\"nginx\""),
        "x.toml:4: unknown value `nginx`; known here: `none`, `midspan`, `haproxy`"
    );
}

#[test]
fn missing_keys() {
    assert_eq!(spoilt("title = \"A file without faults\"\n", ""), "x.toml:1: `title` is missing");
    assert_eq!(spoilt("share = \"$loss\", ", ""), "x.toml:9: `share` is missing");
    let lonely = spoilt("{ loss = {", "{ wla = { threshold = \"2 KB\" } }, { loss = {");
    assert!(lonely.starts_with("x.toml:7: up, element 2 (wla): it looks at"), "{lonely}");
    assert_eq!(spoilt("direction = \"upload\"\n", ""), "x.toml:25: `direction` is missing");
    assert_eq!(
        spoilt("kind = \"bulk\"\n", ""),
        "x.toml:25: `kind` is missing from the workload: `bulk`, `transfer`, `page` or `video`"
    );
}

#[test]
fn bad_quantities() {
    let rate = "is not a rate such as `384 kbit/s`, `100 Mbit/s` or `1 Gbit/s` (decimal units)";
    assert_eq!(spoilt("\"1 Gbit/s\"", "\"1 GB/s\""), format!("x.toml:8: `1 GB/s` {rate}"));
    assert!(spoilt("\"2 s\"", "2").starts_with("x.toml:28: found integer `2`; expected a time"));
    assert!(
        spoilt("\"4096 131072 6291456\"", "\"4096 131072\"")
            .starts_with("x.toml:20: `4096 131072` is not three byte counts that do not fall"),
    );
    assert_eq!(
        spoilt("repetitions = 2", "repetitions = 0"),
        "x.toml:3: 0 repetitions cannot be run; from 1 to 1000 can"
    );
}

/// The error is where the point is written, and says where it was put.
#[test]
fn a_bad_value_from_an_axis() {
    assert_eq!(
        spoilt("\"0 %\"", "\"101 %\""),
        "x.toml:35: `101 %` is not a share between `0 %` and `100 %`, such as `0.5 %` \
         (here as `$loss` of line 9)"
    );
    assert!(
        spoilt("wide = \"22.5 ms\"", "wide = 22.5")
            .starts_with("x.toml:38: found floating point `22.5`; expected a time"),
    );
    let swept = GOOD
        .replace("warmup = \"500 ms\"", "warmup = \"$warmup\"")
        .replace("[sweep]\n", "[sweep]\nwarmup = [\"1 s\", \"2 s\"]\n");
    assert_eq!(
        Scenario::parse(&swept, "x.toml").unwrap_err().to_string(),
        "x.toml:35: a warm-up of 2 s leaves nothing of 2 s to measure; it must be shorter \
         (here as `$warmup` of line 29)"
    );
}

#[test]
fn impossible_values() {
    assert_eq!(
        spoilt("warmup = \"500 ms\"", "warmup = \"3 s\""),
        "x.toml:29: a warm-up of 3 s leaves nothing of 2 s to measure; it must be shorter"
    );
    assert_eq!(
        spoilt("\"6250 KB\"", "\"0 B\""),
        "x.toml:8: a queue that holds nothing passes nothing: give a limit above zero, or none at \
         all"
    );
    assert_eq!(
        spoilt("= \"bbr\"", "= \"a name that is too long\""),
        "x.toml:23: `a name that is too long` is not the name of a congestion control, such as \
         `cubic`"
    );
    assert_eq!(
        spoilt("congestion_control = \"bbr\"", "send_buffer = \"4 GiB\""),
        "x.toml:23: `send_buffer` must be between 4 KiB and 1 GiB"
    );
    assert_eq!(
        spoilt("at = \"server\"", "at = \"mec\""),
        "x.toml:32: with the service on the MEC there is nothing to split; run `variants = \
         [\"none\"]` or skip the proxies here"
    );
    assert_eq!(
        spoilt("warmup =", "flows = 0\nwarmup ="),
        "x.toml:29: 0 flows cannot be run; from 1 to 1000 can"
    );
    assert_eq!(
        spoilt("warmup =", "controls = [\"cubic\", \"reno\"]\nwarmup ="),
        "x.toml:29: 2 controls for 1 flows; there can be one for each"
    );
    assert_eq!(
        spoilt("warmup =", "controls = [\"cu bic\"]\nwarmup ="),
        "x.toml:29: `cu bic` is not the name of a congestion control, such as `cubic`"
    );
    assert_eq!(
        spoilt("warmup =", "greeting = \"2 KB\"\nwarmup ="),
        "x.toml:29: a greeting of 2 KB is more than a packet; at most 1 KiB"
    );
    for every in ["0 s", "0.9 ms"] {
        assert_eq!(
            spoilt("warmup =", &format!("series = \"{every}\"\nwarmup =")),
            "x.toml:29: a look is 1 ms or more after another, and there are up to 100000"
        );
    }
    assert_eq!(
        spoilt("name = \"good\"", "name = \"Good file\""),
        "x.toml:1: `Good file` cannot name a scenario; lower case letters, digits and `-` can"
    );
}

#[test]
fn sweeps() {
    assert_eq!(
        spoilt("\"$loss\"", "\"$lost\""),
        "x.toml:9: unknown axis `lost`; did you mean `loss`? Known here: `loss`, `rtt`"
    );
    assert_eq!(
        spoilt("\"$loss\"", "\"0 %\""),
        "x.toml:35: nothing in the file uses `$loss`; put it in place of a value, or remove it"
    );
    assert_eq!(
        spoilt("\"$rtt.access\"", "\"$rtt.acess\""),
        "x.toml:10: unknown field `acess`; did you mean `access`? Known here: `access`, `wide` \
         (point `near` of line 37)"
    );
    assert_eq!(
        spoilt("\"$rtt.access\"", "\"$rtt\""),
        "x.toml:10: axis `rtt` has points of several values; write `$rtt.access` or `$rtt.wide`"
    );
    assert_eq!(
        spoilt("\"$loss\"", "\"$loss.share\""),
        "x.toml:9: axis `loss` has plain values; write `$loss`"
    );
    assert_eq!(
        spoilt("loss = [\"0 %\", \"0.5 %\", \"1 %\"]", "loss = []"),
        "x.toml:35: axis `loss` has no points; give at least one"
    );
    assert_eq!(
        spoilt("\"0 %\", \"0.5 %\"", "\"0.5 %\", \"0.5 %\""),
        "x.toml:35: axis `loss` has two points `0.5 %`; labels differ"
    );
    assert_eq!(
        spoilt("label = \"far\", ", ""),
        "x.toml:38: a point of several values needs a `label` of text"
    );
}

#[test]
fn cells_that_do_not_exist() {
    assert_eq!(
        spoilt("cell = { loss = \"0.5 %\" }", "cell = { loss = \"5 %\" }"),
        "x.toml:51: axis `loss` has no point `5 %`; it has `0 %`, `0.5 %`, `1 %`"
    );
    assert_eq!(
        spoilt("cell = { loss = \"0.5 %\" }", "cell = { los = \"0.5 %\" }"),
        "x.toml:51: unknown axis `los`; did you mean `loss`? Known here: `loss`, `rtt`"
    );
    assert_eq!(
        spoilt("cell = { loss = \"0.5 %\" }", "cell = { loss = \"1 %\", rtt = \"far\" }"),
        "x.toml:50: no cell with these labels runs variant `midspan`; mend the labels or remove it"
    );
    assert_eq!(
        spoilt("because =", "variants = [\"haproxy\"]\nbecause ="),
        "x.toml:46: there is nothing here to skip; mend the labels and variants or remove it"
    );
    assert_eq!(
        spoilt("sweep = { loss = [\"0.5 %\"] }", "sweep = { loss = [\"2 %\"] }"),
        "x.toml:44: axis `loss` has no point `2 %`; it has `0 %`, `0.5 %`, `1 %`"
    );
}

#[test]
fn reported_numbers() {
    assert_eq!(
        spoilt("variants = [\"midspan\"]\ngain", "variants = [\"none\"]\ngain"),
        "x.toml:50: a gain is over variant `none`; that one has none itself"
    );
    assert_eq!(
        spoilt("gain = 77.6\n", ""),
        "x.toml:50: nothing is reported here; give a `goodput`, a `gain` or a `note`"
    );
}

#[test]
fn the_short_version() {
    assert_eq!(
        spoilt("workload = { time = \"1 s\" }", "workload = { time = \"100 ms\" }"),
        "x.toml:29: a warm-up of 500 ms leaves nothing of 100 ms to measure; it must be shorter \
         (in the short version)"
    );
    assert_eq!(
        spoilt("workload = { time = \"1 s\" }", "workload = { tmie = \"1 s\" }"),
        "x.toml:43: unknown key `tmie`; did you mean `time`? Known here: `direction`, `time`, \
         `warmup`, `flows`, `stagger`, `controls`, `greeting`, `percentiles`, `series` (in the short version)"
    );
    assert_eq!(
        spoilt("[short]\nrepetitions = 1", "[short]\nrepetitions = 0"),
        "x.toml:42: 0 repetitions cannot be run; from 1 to 1000 can"
    );
}

/// A good file with feedback, a comparison and a synthetic trace.
const ASSISTED: &str = r#"name = "assisted"
title = "NetAssist"
variants = ["none"]
[path.access]
down = [{ trace = { file = "lte" } }, { delay = "4 ms" }]
[path.wide]
[assist]
feedback = "$scheme.feedback"
period = "50 ms"
[workload]
kind = "bulk"
direction = "download"
time = "2 s"
[hosts.server]
congestion_control = "$scheme.control"
[traces.lte]
mean = "5 Mbit/s"
[sweep]
scheme = [
    { label = "a", control = "cubic", feedback = "none" },
    { label = "b", control = "ms_natcp", feedback = "causal" },
]
[compare]
axis = "scheme"
point = "b"
[[compare.reported]]
against = "a"
power = 22.85
"#;

#[test]
fn assisted_files() {
    assert_eq!(Scenario::parse(ASSISTED, "x.toml").unwrap().cells().len(), 2);
    let spoilt = |from: &str, to: &str| {
        assert!(ASSISTED.contains(from), "{from}");
        Scenario::parse(&ASSISTED.replacen(from, to, 1), "x.toml").unwrap_err().to_string()
    };
    let error = spoilt("direction = \"download\"", "direction = \"upload\"");
    assert!(error.starts_with("x.toml:21: feedback is for those who send to the UE"), "{error}");
    let error = spoilt("{ trace = { file = \"lte\" } }, ", "");
    assert!(error.contains("put a `trace` into `path.access.down`"), "{error}");
    let error = spoilt("50 ms", "5 ms");
    assert!(error.starts_with("x.toml:9: `period` must be between 10 ms and 500 ms"), "{error}");
    let error = spoilt("50 ms\"", "50 ms\"\npace_percent = 0");
    assert!(error.contains("`pace_percent` must be between 50 and 1000"), "{error}");
    let error = spoilt("50 ms\"", "50 ms\"\nstanding_queue = \"2 s\"");
    assert!(error.contains("`standing_queue` must be at most 1 s"), "{error}");
    let error = spoilt("50 ms\"", "50 ms\"\nrtt = \"smoothed\"");
    assert!(error.starts_with("x.toml:10: `rtt` is the sender's own"), "{error}");
    let error = spoilt("feedback = \"causal\"", "feedback = \"acausal\"");
    assert!(error.contains("`none`, `causal`, `oracle`"), "{error}");
    let error = spoilt("mean = \"5 Mbit/s\"", "mean = \"0 bit/s\"");
    assert!(error.contains("`mean` of a synthetic trace must be above zero"), "{error}");
    let error = spoilt("point = \"b\"", "point = \"c\"");
    assert!(error.starts_with("x.toml:25: axis `scheme` has no point `c`"), "{error}");
    let error = spoilt("against = \"a\"", "against = \"c\"");
    assert!(error.starts_with("x.toml:27: axis `scheme` has no point `c`"), "{error}");
}
