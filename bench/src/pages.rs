//! Web pages in a real browser over an emulated cellular access: headless Chromium loads a page of many servers without a
//! relay, and with each of the relay's handshakes. What is told is the browser's own time of the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use midspan_emu::Backend;
use midspan_lab::topology::{SERVER, Topology, UE};
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};
use midspan_sys::netlink::Netlink;
use midspan_sys::process::{command, die_with_parent};
use midspan_sys::userns;
use serde::{Deserialize, Serialize};

use crate::statistics::median;
use crate::{program, record};

#[derive(Args)]
pub(crate) struct Options {
    /// Repetitions of everything, interleaved.
    #[arg(long, default_value_t = 9)]
    repetitions: u32,

    /// Packets that the radio loses, such as 0.5 %.
    #[arg(long, default_value = "0.5 %")]
    loss: String,

    /// Keep raw results, summary, machine and command under bench/runs.
    #[arg(long)]
    record: bool,
}

/// What stands between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Between {
    /// A router.
    Nothing,
    /// The relay, which answers the client at once.
    Early,
    /// The relay, which learns of servers; it knows none of the page's yet.
    LearnedUnknown,
    /// The same relay, for the next client.
    LearnedKnown,
    /// The relay, which answers the client when the server has.
    Confirmed,
}

impl Between {
    fn name(self) -> &'static str {
        match self {
            Between::Nothing => "without a relay",
            Between::Early => "early",
            Between::LearnedUnknown => "learned, servers not known",
            Between::LearnedKnown => "learned, servers known",
            Between::Confirmed => "confirmed",
        }
    }
}

/// One page, one JSON object a line in the raw results.
#[derive(Debug, Serialize)]
struct Run {
    between: Between,
    repetition: u32,
    /// From the beginning of the navigation to the load event, in ms, as the browser says.
    load_ms: f64,
    /// Until the browser had drawn something, in ms; none if it said nothing of it.
    paint_ms: Option<f64>,
}

/// What the page has of a kind, and on how many servers of its own; none is the page's. The medians of October 2024 for
/// desktop pages (HTTP Archive, Web Almanac 2024, page weight), as in `scenarios/web/page-2024.toml`.
const OBJECTS: [(&str, u32, u32, u32, u32); 5] = [
    ("css", 8, 2_000, 18_000, 0),
    ("js", 24, 2_000, 49_000, 6),
    ("font", 4, 20_000, 45_000, 1),
    ("image", 18, 7_000, 110_000, 4),
    ("other", 16, 500, 5_000, 6),
];
const DOCUMENT: usize = 18_000;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> Result<()> {
    if !userns::is_root() {
        bail!("the relay's own steering takes root; run this as root");
    }
    for (tool, package) in [("chromium", "chromium"), ("nginx", "nginx-light")] {
        if command(tool).arg("--version").output().is_err() {
            bail!("{tool} is not installed: apt-get install {package}");
        }
    }
    let midspan = program::build()?;
    let mut runs = Vec::new();
    for repetition in 0..options.repetitions {
        let mut kinds = vec![Kind::Nothing, Kind::Early, Kind::Learned, Kind::Confirmed];
        let first = repetition as usize % kinds.len();
        kinds.rotate_left(first);
        for kind in kinds {
            for (between, (load_ms, paint_ms)) in load(kind, options, &midspan, repetition)? {
                eprintln!("{}, repetition {}: {load_ms:.0} ms", between.name(), repetition + 1);
                runs.push(Run { between, repetition, load_ms, paint_ms });
            }
        }
    }
    let summary = summary(&runs, options);
    print!("\n{summary}");
    if options.record {
        println!("kept in {}", record::keep("pages", &runs, &summary, false)?.display());
    }
    Ok(())
}

/// What is set up, for one page or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    Early,
    Learned,
    Confirmed,
}

/// Pages with the browser's times of load and of first paint.
type Loaded = Vec<(Between, (f64, Option<f64>))>;

fn load(kind: Kind, options: &Options, midspan: &Path, seed: u32) -> Result<Loaded> {
    let spec = path(&options.loss)?;
    let variant = match kind {
        Kind::Nothing => Variant::None,
        Kind::Early | Kind::Learned | Kind::Confirmed => Variant::Midspan,
    };
    let backend = Backend::available();
    let topology = Topology::build(&spec, variant, &Traces::new(), u64::from(seed) + 1, backend)?;
    let site = Site::start(&topology)?;
    let relay = |handshake| Relay::start(&topology, midspan, handshake);
    let page = || browse(&topology, &site);
    Ok(match kind {
        Kind::Nothing => vec![(Between::Nothing, page()?)],
        Kind::Early => {
            let _relay = relay("early")?;
            vec![(Between::Early, page()?)]
        }
        Kind::Learned => {
            let _relay = relay("learned")?;
            vec![(Between::LearnedUnknown, page()?), (Between::LearnedKnown, page()?)]
        }
        Kind::Confirmed => {
            let _relay = relay("confirmed")?;
            vec![(Between::Confirmed, page()?)]
        }
    })
}

/// 20 Mbit/s with half a second of queue, 20 ms to the relay and 50 ms beyond.
fn path(loss: &str) -> Result<CellSpec> {
    let text = format!(
        r#"
        name = "pages"
        title = "Pages over a cellular access"
        variants = ["none"]
        [path.access]
        up = [{{ rate = {{ rate = "5 Mbit/s", queue = {{ bytes = "312 KB" }} }} }}, {{ delay = "10 ms" }}]
        down = [
            {{ rate = {{ rate = "20 Mbit/s", queue = {{ bytes = "1250 KB" }} }} }},
            {{ loss = {{ share = "{loss}", unit = "packet" }} }},
            {{ delay = "10 ms" }},
        ]
        [path.wide]
        up = [{{ delay = "25 ms" }}]
        down = [{{ delay = "25 ms" }}]
        [workload]
        kind = "bulk"
        direction = "download"
        time = "1 s"
        "#
    );
    let scenario = Scenario::parse(&text, "bench pages")?;
    let cells = scenario.cells();
    Ok(cells.first().context("no cell")?.spec.clone())
}

/// The page and its servers: an address each, and one nginx.
struct Site {
    nginx: Child,
    directory: tempfile::TempDir,
}

impl Site {
    fn start(topology: &Topology) -> Result<Site> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        let servers: u32 = OBJECTS.iter().map(|kind| kind.4).sum();
        topology.server.run(|| {
            let mut netlink = Netlink::open()?;
            let index = netlink.index("wide")?;
            (1..=servers).try_for_each(|number| netlink.add_address(index, at(number).into(), 32))
        })??;
        fs::write(root.join("index.html"), document(root)?)?;
        let said = root.display();
        let configuration = format!(
            "daemon off;\nworker_processes 1;\npid {said}/pid;\nerror_log stderr;\nevents {{ }}\nhttp {{\n  \
             log_format page \"$args\";\n  access_log off;\n  default_type text/html;\n  \
             types {{ text/css css; application/javascript js; font/woff2 font; image/png image; }}\n  \
             client_body_temp_path {said}/body;\n  proxy_temp_path {said}/proxy;\n  \
             fastcgi_temp_path {said}/fastcgi;\n  uwsgi_temp_path {said}/uwsgi;\n  scgi_temp_path {said}/scgi;\n  \
             server {{\n    listen 80;\n    root {said};\n    \
             location = /done {{ access_log {said}/done.log page; return 204; }}\n  }}\n}}\n"
        );
        let path = root.join("nginx.conf");
        fs::write(&path, configuration)?;
        let mut nginx = command("nginx");
        nginx.arg("-p").arg(root).arg("-c").arg(&path);
        nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nginx = die_with_parent(topology.server.apply(&mut nginx)).spawn()?;
        fs::write(root.join("done.log"), "")?;
        let site = Site { nginx, directory };
        wait_for("nginx", || {
            let connects = || std::net::TcpStream::connect((SERVER.v4, 80)).is_ok();
            Ok(topology.server.run(connects)?.then_some(()))
        })?;
        Ok(site)
    }

    /// What browsers have said of their pages so far.
    fn done(&self) -> Result<Vec<String>> {
        let said = fs::read_to_string(self.directory.path().join("done.log"))?;
        Ok(said.lines().map(str::to_owned).collect())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Its master ends its workers on SIGTERM only.
        if let Some(pid) = rustix::process::Pid::from_raw(self.nginx.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.nginx.wait();
    }
}

/// The address of a server of the page; the page's own is 0.
fn at(number: u32) -> Ipv4Addr {
    let [a, b, c, d] = SERVER.v4.octets();
    if number == 0 { SERVER.v4 } else { Ipv4Addr::new(a, b, c, d + 8 + number as u8) }
}

/// Writes the objects to `root`; gives the document that asks for them.
fn document(root: &Path) -> Result<String> {
    let (mut head, mut body, mut first) = (String::new(), String::new(), 1);
    for (kind, count, least, most, servers) in OBJECTS {
        for index in 0..count {
            let size = least + (most - least) * index / (count - 1).max(1);
            let server = if servers == 0 { 0 } else { first + index % servers };
            let url = format!("http://{}/{kind}-{index}.{kind}", at(server));
            let filler = "x".repeat(size as usize);
            let text = match kind {
                "css" | "js" => format!("/*{filler}*/"),
                _ => filler,
            };
            fs::write(root.join(format!("{kind}-{index}.{kind}")), text)?;
            match kind {
                "css" => writeln!(head, "<link rel=stylesheet href=\"{url}\">")?,
                "js" => writeln!(body, "<script src=\"{url}\" defer></script>")?,
                "font" => writeln!(head, "<link rel=preload as=fetch href=\"{url}\">")?,
                _ => writeln!(body, "<img src=\"{url}\">")?,
            }
        }
        first += servers;
    }
    let tell = "addEventListener('load', () => setTimeout(() => {\
        const page = performance.getEntriesByType('navigation')[0];\
        const paint = performance.getEntriesByName('first-contentful-paint')[0];\
        fetch('/done?' + page.loadEventStart + '&' + (paint ? paint.startTime : ''));\
        }, 0));";
    let text = format!(
        "<!doctype html><title>page</title>\n{head}<script>{tell}</script>\n<p>text</p>\n{body}"
    );
    let filler = " ".repeat(DOCUMENT.saturating_sub(text.len()));
    Ok(text + &filler)
}

/// The relay with a handshake.
struct Relay {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Relay {
    fn start(topology: &Topology, midspan: &Path, handshake: &str) -> Result<Relay> {
        let directory = tempfile::tempdir()?;
        let notify = directory.path().join("notify");
        let manager = UnixDatagram::bind(&notify)?;
        manager.set_nonblocking(true)?;
        let mut relay = Command::new(midspan);
        relay
            .args(["relay", "--client", &format!("{}/32", UE.v4), "--set", "pin=false", "--set"])
            .arg(format!("handshake={handshake}"))
            .arg("--set")
            .arg(format!("admin.socket={}", directory.path().join("admin").display()))
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = die_with_parent(topology.mec.apply(&mut relay)).spawn()?;
        let relay = Relay { child, _directory: directory };
        let mut said = [0; 256];
        wait_for("the relay", || match manager.recv(&mut said) {
            Ok(bytes) => Ok(said[..bytes].starts_with(b"READY=1").then_some(())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        })?;
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has a browser that knows nothing load the page; gives its times of load and first paint.
fn browse(topology: &Topology, site: &Site) -> Result<(f64, Option<f64>)> {
    let before = site.done()?.len();
    let profile = tempfile::tempdir()?;
    let mut browser = command("chromium");
    browser
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-extensions", "--no-proxy-server", "--no-pings"])
        .args(["--remote-debugging-port=0"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{}/", SERVER.v4))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut browser = die_with_parent(topology.ue.apply(&mut browser)).spawn()?;
    let said = wait_for("the page", || Ok(site.done()?.get(before).cloned()));
    let _ = browser.kill();
    let _ = browser.wait();
    let said = said?;
    let (load, paint) = said.split_once('&').unwrap_or((&said, ""));
    Ok((load.parse().with_context(|| format!("the browser said `{said}`"))?, paint.parse().ok()))
}

fn wait_for<T>(what: &str, mut happened: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = happened()? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("{what} was not there in {PATIENCE:?}");
        }
        sleep(Duration::from_millis(5));
    }
}

fn summary(runs: &[Run], options: &Options) -> String {
    let mut all: BTreeMap<Between, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        all.entry(run.between).or_default().push(run);
    }
    let beside = |runs: &[&Run], other: Between| {
        let ratio = |run: &&Run| {
            let of = all.get(&other)?.iter().find(|of| of.repetition == run.repetition)?;
            Some(run.load_ms / of.load_ms)
        };
        median(runs.iter().filter_map(ratio).collect())
    };
    let mut text = format!(
        "A page of 71 objects on 18 servers (HTTP/1.1, Chromium), 20 Mbit/s, {} of packets lost, 20 ms to the\n\
         relay and 50 ms beyond. The browser's own times, in ms: medians (least - most) of {} repetitions.\n\n  \
         {:<28}{:>24}{:>12}{:>16}{:>14}\n",
        options.loss, options.repetitions, "", "load", "first paint", "x without", "x early"
    );
    for (between, runs) in &all {
        let loads: Vec<f64> = runs.iter().map(|run| run.load_ms).collect();
        let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
        let most = loads.iter().copied().fold(0.0, f64::max);
        let paint = median(runs.iter().filter_map(|run| run.paint_ms).collect());
        let load = format!("{:.0} ({least:.0} - {most:.0})", median(loads));
        text += &format!(
            "  {:<28}{load:>24}{paint:>12.0}{:>16.3}{:>14.3}\n",
            between.name(),
            beside(runs, Between::Nothing),
            beside(runs, Between::Early)
        );
    }
    text + "\nx: the page's load time over that one's, repetition by repetition; below 1 is better.\n"
}
