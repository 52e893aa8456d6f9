//! `midspan lab serve`: a folder of results, asked over HTTP and in a browser.

mod common;

#[path = "common/browser.rs"]
mod browser;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::OnceLock;

use browser::Browser;
use midspan_lab::results::Results;
use midspan_scenario::record::Record;
use midspan_sys::process::die_with_parent;
use tempfile::TempDir;

const SCENARIO: &str = r#"
    name = "served"
    title = "Upload over loss & delay"
    seed = 1
    repetitions = 2
    variants = ["none", "midspan"]
    [path.access]
    up = [{ rate = { rate = "20 Mbit/s", queue = { bytes = "50 KB" } } }, { loss = { share = "$loss" } }]
    down = [{ delay = "5 ms" }]
    [path.wide]
    up = [{ delay = "$delay" }]
    down = [{ delay = "5 ms" }]
    [workload]
    kind = "bulk"
    direction = "upload"
    time = "2 s"
    series = "20 ms"
    [sweep]
    loss = ["0 %", "0.5 %", "1 %"]
    delay = ["20 ms", "60 ms"]
"#;
/// Of three losses, two delays, two variants, twice.
const RUNS: usize = 24;

/// A folder of results with two sweeps of one scenario, of different seeds, which ended.
struct Shown {
    folder: TempDir,
    runs: Vec<String>,
}

fn shown() -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    for seed in 1..=2 {
        let directory = folder.path().join(format!("served {seed}"));
        fs::create_dir(&directory).unwrap();
        let results = Results::create(&directory, &scenario(seed), &command(seed)).unwrap();
        let mut results = results;
        for record in simulated(seed) {
            results.add(record.clone()).unwrap();
        }
        let id = results.directory().strip_prefix(folder.path()).unwrap();
        runs.push(id.to_str().unwrap().to_owned());
    }
    Shown { folder, runs }
}

fn scenario(seed: u64) -> String {
    SCENARIO.replace("seed = 1", &format!("seed = {seed}"))
}

fn command(seed: u64) -> String {
    format!("midspan lab run {seed}.toml --backend sim")
}

/// What the program itself gives, once for all tests.
fn simulated(seed: u64) -> &'static [Record] {
    static RECORDS: OnceLock<[Vec<Record>; 2]> = OnceLock::new();
    let all = RECORDS.get_or_init(|| [1, 2].map(simulate));
    &all[seed as usize - 1]
}

fn simulate(seed: u64) -> Vec<Record> {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("served.toml"), folder.path().join("results"));
    fs::write(&file, scenario(seed)).unwrap();
    let mut run = common::midspan();
    run.args(["lab", "run", "--backend", "sim"]).arg(&file).arg("--out").arg(&out);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let directory = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    Results::read(&directory).unwrap().records().to_vec()
}

/// The program at work.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(folder: &Path) -> Server {
        let mut command = common::midspan();
        command.args(["lab", "serve"]).arg(folder).args(["--listen", "127.0.0.1:0"]);
        let mut child = die_with_parent(command.stdout(Stdio::piped())).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
        Server { child, address: address.parse().unwrap() }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Status, head and body of what is answered.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        let host = self.address;
        let (status, _, body) =
            self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        (status, body)
    }

    /// Sends it a signal, and answers with which status it ended.
    fn end_by(&mut self, signal: &str) -> Option<i32> {
        assert!(common::signal(self.child.id(), signal));
        self.child.wait().unwrap().code()
    }
}

fn encoded(id: &str) -> String {
    id.replace(' ', "+").replace('/', "%2F")
}

#[test]
fn the_list_has_every_run_and_each_has_its_report() {
    let shown = shown();
    let server = Server::start(shown.folder.path());
    let (status, list) = server.get("/");
    assert_eq!(status, 200);
    assert_eq!(list.matches("Upload over loss &amp; delay</a>").count(), 2, "{list}");
    assert_eq!(list.matches("simulated").count(), 4, "backend, and in the name of the choice");
    assert_eq!(list.matches(&format!("{RUNS} runs, <span class=\"good\">all trusted")).count(), 2);
    for id in &shown.runs {
        let address = format!("/run?id={}", encoded(id));
        assert!(list.contains(&format!("href=\"{address}\"")), "{address} in {list}");
        let (status, report) = server.get(&address);
        assert_eq!(status, 200);
        for part in ["<h2>Goodput</h2>", "<h2>Over time</h2>", "Scenario file", id] {
            assert!(report.contains(part), "{part}");
        }
    }
    // Nothing comes from elsewhere, and nothing runs that is not the program's own.
    for page in [list, server.get(&format!("/run?id={}", encoded(&shown.runs[0]))).1] {
        for outside in ["http:", "https:", "url(", "@import", "onclick"] {
            let page = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains(outside), "{outside}");
        }
    }
    assert!(server.get("/browse.js").1.contains("use strict"));
}

#[test]
fn a_folder_of_one_sweep_is_a_list_of_one() {
    let shown = shown();
    let server = Server::start(&shown.folder.path().join(&shown.runs[0]));
    assert!(server.get("/").1.contains("href=\"/run?id=\""));
    assert!(server.get("/run?id=").1.contains("<h2>Goodput</h2>"));
}

#[test]
fn runs_are_compared_over_the_axes_that_are_picked() {
    let shown = shown();
    let server = Server::start(shown.folder.path());
    let [a, b] = [0, 1].map(|index| encoded(&shown.runs[index]));
    let (status, page) = server.get(&format!("/compare?run={a}&run={b}"));
    assert_eq!(status, 200);
    // As `lab compare --with` has it.
    assert!(page.contains("Of 12 cells and variants in both, "), "{page}");
    assert!(page.contains("B over A"));
    // Along the longest axis, a drawing for each point of the other.
    assert_eq!(page.matches("<svg").count(), 2);
    assert_eq!(page.matches("<tr>").count(), 1 + 6);
    let (_, picked) = server.get(&format!(
        "/compare?run={a}&run={b}&measure=goodput&along=delay&at.loss=1+%25&through=midspan"
    ));
    assert_eq!((picked.matches("<svg").count(), picked.matches("<tr>").count()), (1, 1 + 2));
    assert!(picked.contains("A: Midspan") && !picked.contains("A: no proxy"));
    // The same run twice is one, and held against itself it is the same.
    let (_, alone) = server.get(&format!("/compare?run={a}&run={a}"));
    assert!(!alone.contains("over A"));
    for wrong in ["/compare", "/compare?run=a&run=b&run=c&run=d&run=e"] {
        assert_eq!(server.get(wrong).0, 400, "{wrong}");
    }
    assert_eq!(server.get(&format!("/compare?run={a}&run=nothing")).0, 404);
}

#[test]
fn nothing_outside_the_folder_is_shown() {
    let shown = shown();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("sweep");
    fs::create_dir(&secret).unwrap();
    let inside = shown.folder.path().join(&shown.runs[0]);
    for entry in fs::read_dir(&inside).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, secret.join(path.file_name().unwrap())).unwrap();
    }
    let below = shown.folder.path().join("below");
    fs::create_dir(&below).unwrap();
    symlink(&secret, below.join("link")).unwrap();
    // A folder inside whose scenario is a link.
    let linked = shown.folder.path().join("linked");
    fs::create_dir(&linked).unwrap();
    fs::copy(inside.join("records.jsonl"), linked.join("records.jsonl")).unwrap();
    symlink(secret.join("scenario.toml"), linked.join("scenario.toml")).unwrap();

    let server = Server::start(shown.folder.path());
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    let secret = secret.to_str().unwrap();
    for id in [
        secret.to_owned(),
        format!("../{name}/sweep"),
        format!("%2e%2e%2f{name}%2fsweep"),
        format!("below/../../{name}/sweep"),
        format!("./../{name}/sweep"),
        "below/link".to_owned(),
        "below%00".to_owned(),
        "served+1".to_owned(),
        "%ff%fe".to_owned(),
        "a".repeat(5000),
    ] {
        for page in ["/run?id=", "/compare?run="] {
            let (status, body) = server.get(&format!("{page}{id}"));
            assert_eq!(status, 404, "{page}{id}");
            assert!(!body.contains("Upload over loss"), "{id}");
        }
    }
    for path in ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/records.jsonl", "//etc/passwd"]
    {
        assert_eq!(server.get(path).0, 404, "{path}");
    }
    let (_, list) = server.get("/");
    assert!(list.contains("scenario.toml is a link out of the folder") && !list.contains("link\""));
    assert!(!server.get("/run?id=linked").1.contains("Upload over loss"));
}

#[test]
fn bad_requests_are_refused_and_end_nothing() {
    let shown = shown();
    let server = Server::start(shown.folder.path());
    let host = server.address;
    let with = |method: &str, host: &str| {
        server.ask(&format!("{method} / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let (status, head, _) = with(method, &host.to_string());
        assert_eq!(status, 405, "{method}");
        assert!(head.to_lowercase().contains("allow: get, head"), "{head}");
    }
    let (status, _, body) = with("HEAD", &host.to_string());
    assert_eq!((status, &*body), (200, ""));
    // A name of another site that leads here.
    for other in ["evil.example", "127.0.0.1.evil.example", "", "10.1.2.3:80"] {
        assert_eq!(with("GET", other).0, 403, "{other}");
    }
    assert_eq!(with("GET", "localhost:1").0, 200);
    for garbage in ["\r\n\r\n", "GET\r\n\r\n", "\u{1}\u{2}\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        assert_ne!(server.ask(garbage).0, 200, "{garbage:?}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert_ne!(server.ask(&long).0, 200);
    // Whoever says nothing keeps nobody from it.
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(server.get("/").0, 200);
    drop(silent);
    let (_, head, _) = with("GET", &host.to_string());
    assert!(head.contains("default-src 'none'"), "{head}");
}

#[test]
fn results_that_cannot_be_read_are_told_in_the_list() {
    let shown = shown();
    let broken = shown.folder.path().join("broken");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("scenario.toml"), "name = <b>").unwrap();
    fs::write(broken.join("records.jsonl"), "{\"schema\": 999}\n").unwrap();
    let server = Server::start(shown.folder.path());
    let (status, list) = server.get("/");
    assert_eq!(status, 200);
    assert!(list.contains("a record of schema 999; this version reads"), "{list}");
    assert_eq!(list.matches(" data-state=\"").count(), 3);
    let (status, page) = server.get("/run?id=broken");
    assert_eq!(status, 200);
    assert!(page.contains("a record of schema 999"), "{page}");
    assert_eq!(server.get("/compare?run=broken").0, 400);
}

#[test]
fn a_sweep_that_runs_is_followed() {
    let shown = shown();
    let server = Server::start(shown.folder.path());
    let (_, before) = server.get("/changes?since=");
    let mut growing =
        Results::create(&shown.folder.path().join("new"), &scenario(1), &command(1)).unwrap();
    let (_, begun) = server.get(&format!("/changes?since={before}"));
    assert_ne!(begun, before);
    let (_, list) = server.get("/");
    assert!(list.contains(&format!("0 of {RUNS} runs, running")), "{list}");
    assert!(list.contains("No run has ended yet."));
    growing.add(simulated(1)[0].clone()).unwrap();
    let (_, added) = server.get(&format!("/changes?since={begun}"));
    assert_ne!(added, begun);
    let (_, list) = server.get("/");
    let running = list.split("<tbody").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(
        running.contains(&format!("1 of {RUNS} runs, running")),
        "first in the list: {running}"
    );
    // Given up before its end.
    drop(growing);
    server.get(&format!("/changes?since={added}"));
    assert!(server.get("/").1.contains(&format!("1 of {RUNS} runs, stopped")));
}

#[test]
fn it_ends_at_once_with_status_0() {
    let shown = shown();
    for signal in ["-INT", "-TERM"] {
        let mut server = Server::start(shown.folder.path());
        let (_, now) = server.get("/changes?since=");
        // Somebody waits for changes, for much longer.
        let mut waiting = TcpStream::connect(server.address).unwrap();
        let request = format!("GET /changes?since={now} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        waiting.write_all(request.as_bytes()).unwrap();
        server.get("/");
        assert_eq!(server.end_by(signal), Some(0), "{signal}");
        // Nobody was waited for.
        let mut answer = Vec::new();
        let _ = waiting.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_one_line_and_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = holder.local_addr().unwrap().to_string();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = folder.path().join("missing");
    let serve = |arguments: &[&str]| -> Output {
        common::midspan().args(["lab", "serve"]).args(arguments).output().unwrap()
    };
    for (arguments, what) in [
        (vec![folder.path().to_str().unwrap(), "--listen", &busy], "cannot listen at"),
        (vec![file.to_str().unwrap()], "file: "),
        (vec![missing.to_str().unwrap()], "missing: "),
    ] {
        let output = serve(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(what), "{said}");
    }
    drop(holder);
    assert_eq!(serve(&["--listen", "nonsense"]).status.code(), Some(2));
}

#[test]
fn a_browser_chooses_and_compares_by_mouse_and_by_keys() {
    if !common::has("chromium") {
        return;
    }
    let shown = shown();
    let server = Server::start(shown.folder.path());
    let mut browser = Browser::start();
    browser.window(1280, 900, false);
    browser.open(&server.origin());

    // The first key leads to the way past the navigation.
    browser.press("Tab");
    assert_eq!(browser.value("document.activeElement.textContent"), "To the content");
    // Filter: by keys.
    browser.tab_to("#runs-filter");
    browser.write("served nothing");
    browser.wait("document.querySelectorAll('#runs tbody tr:not([hidden])').length === 0");
    assert_eq!(
        browser.value("document.querySelector('.tools [role=status]').textContent"),
        " 0 shown"
    );
    browser.value("document.getElementById('runs-filter').value = ''; 0");
    browser.write("simulated");
    browser.wait("document.querySelectorAll('#runs tbody tr:not([hidden])').length === 2");

    // Sort: by mouse, and back by keys.
    let first = "document.querySelector('#runs tbody tr td.when').dataset.by * 1";
    browser.click("#runs-2");
    browser.wait("document.querySelector('#runs th:nth-child(3)').ariaSort === 'ascending'");
    let oldest = browser.value(first);
    browser.press("Enter");
    browser.wait("document.querySelector('#runs th:nth-child(3)').ariaSort === 'descending'");
    assert!(browser.value(first).as_f64() >= oldest.as_f64());

    // Choose two by keys, one after the other, and compare by the form's button.
    browser.tab_to("#runs tbody tr:nth-child(1) input");
    browser.press(" ");
    browser.tab_to("#runs tbody tr:nth-child(2) input");
    browser.press(" ");
    assert_eq!(browser.value("document.querySelectorAll('input:checked').length"), 2);
    browser.click("form button[type=submit]");
    browser
        .wait("document.readyState === 'complete' && document.title.startsWith('2 runs compared')");
    assert_eq!(browser.value("document.querySelectorAll('figure svg').length"), 2);

    // Pick an axis by keys: the second of the list, and show it.
    browser.tab_to("#along");
    browser.press("ArrowDown");
    browser.wait("document.querySelector('#along').value === 'delay'");
    browser.tab_to("form.picks button");
    browser.press("Enter");
    browser.wait("location.search.includes('along=delay') && document.readyState === 'complete'");
    assert_eq!(browser.value("document.querySelectorAll('figure svg').length"), 3);
    // The table of numbers sorts by them.
    browser.click("#cells th:last-child button");
    browser.wait(
        "(() => { const all = [...document.querySelectorAll('#cells tbody tr td:last-child')].map((it) => +it.dataset.by); \
         return all.length === 6 && all.every((it, at) => at === 0 || all[at - 1] <= it); })()",
    );
    // And back.
    browser.click("nav a");
    browser.wait("document.title.startsWith('Results')");
    browser.click("#runs tbody tr td.what a");
    browser.wait("document.readyState === 'complete' && location.pathname === '/run'");
    assert_eq!(browser.value("document.querySelectorAll('h1').length"), 1);
    assert_eq!(browser.troubles(&server.origin()), Vec::<String>::new());
}

#[test]
fn a_browser_follows_a_sweep_without_losing_what_its_user_does() {
    if !common::has("chromium") {
        return;
    }
    let shown = shown();
    let server = Server::start(shown.folder.path());
    let mut growing =
        Results::create(&shown.folder.path().join("new"), &scenario(1), &command(1)).unwrap();
    let mut browser = Browser::start();
    browser.window(1280, 900, false);
    browser.open(&server.origin());
    browser.wait("document.querySelector('#runs progress')?.value === 0");
    browser.value("window.isSamePage = true; 0");
    // One is chosen, and the keyboard is at it.
    browser.tab_to("#runs tbody tr:nth-child(2) input");
    browser.press(" ");
    for (index, record) in simulated(1).iter().enumerate().take(3) {
        growing.add(record.clone()).unwrap();
        browser.wait(&format!("document.querySelector('#runs progress')?.value === {}", index + 1));
    }
    assert_eq!(browser.value("window.isSamePage"), true);
    assert_eq!(browser.value("document.activeElement.checked"), true);
    assert_eq!(browser.value("document.querySelectorAll('input:checked').length"), 1);
    assert_eq!(browser.value("document.getElementById('told').textContent"), "Updated");

    // Its report grows as well, and what is opened stays open.
    browser.click("#runs tbody tr:nth-child(1) td.what a");
    browser.wait("document.readyState === 'complete' && location.pathname === '/run'");
    browser.click("#report details:last-of-type summary");
    let open = "[...document.querySelectorAll('#report details')].map((it) => it.open).join()";
    browser.wait(&format!("{open}.includes('true')"));
    let opened = browser.value(open);
    growing.add(simulated(1)[3].clone()).unwrap();
    browser.wait("document.querySelector('#state progress').value === 4");
    browser.wait("document.querySelector('#report').textContent.includes('4 measured')");
    let now = browser.value(open);
    assert!(now.as_str().unwrap().starts_with(opened.as_str().unwrap()), "{opened} {now}");
    for record in &simulated(1)[4..] {
        growing.add(record.clone()).unwrap();
    }
    browser.wait(&format!(
        "document.querySelector('#state').textContent.includes('{RUNS} runs, all trusted')"
    ));
    assert_eq!(browser.troubles(&server.origin()), Vec::<String>::new());
}

#[test]
fn a_report_of_its_own_sorts_and_filters_its_tables() {
    if !common::has("chromium") {
        return;
    }
    let shown = shown();
    let results = shown.folder.path().join(&shown.runs[0]);
    assert!(common::midspan().args(["lab", "report"]).arg(&results).status().unwrap().success());
    let mut browser = Browser::start();
    browser.window(1280, 900, false);
    browser.open(&format!("file://{}", results.join("report.html").display()).replace(' ', "%20"));
    let rows = |rest: &str| {
        format!(
            "[...document.querySelector('table.sortable').tBodies[0].rows].map((it) => {rest}).join()"
        )
    };
    let gains = "it.cells[4].dataset.by";
    let before = browser.value(&rows(gains));
    let head =
        "[...document.querySelectorAll('th button')].find((it) => it.textContent === 'gain')";
    let button = browser.value(&format!("{head}.id"));
    browser.click(&format!("[id={:?}]", button.as_str().unwrap()));
    let sorted = browser.value(&rows(gains));
    let numbers = |list: &serde_json::Value| -> Vec<f64> {
        list.as_str().unwrap().split(',').map(|number| number.parse().unwrap()).collect()
    };
    let (mut wanted, found) = (numbers(&before), numbers(&sorted));
    assert_eq!(wanted.len(), 6);
    wanted.sort_by(f64::total_cmp);
    assert_eq!(found, wanted, "the worst cell first");
    browser.press("Enter");
    wanted.reverse();
    assert_eq!(numbers(&browser.value(&rows(gains))), wanted);
    assert_eq!(browser.value(&format!("{head}.closest('th').ariaSort")), "descending");

    // Every leg of a cell's four runs is more than a look takes in.
    browser.value("document.querySelectorAll('details').forEach((it) => { it.open = true; }); 0");
    let legs =
        "[...document.querySelectorAll('.filter')].map((it) => it.querySelector('input'))[0]";
    let field = browser.value(&format!("{legs}.id"));
    let field = field.as_str().unwrap().to_owned();
    browser.click(&format!("[id={field:?}]"));
    browser.write("mec server");
    let shown = format!(
        "[...document.getElementById({:?}).tBodies[0].rows].filter((it) => !it.hidden).length",
        field.trim_end_matches("-filter")
    );
    browser.wait(&format!("{shown} === 2"));
    assert_eq!(browser.troubles("file://"), Vec::<String>::new());
}

/// What can be asked of a page by a rule: everything that is used has a name, and nothing is wider than the window.
const RULES: &str = r##"(() => {
    const wrong = [];
    const named = (it) => it.ariaLabel || it.labels?.length || it.textContent.trim();
    for (const it of document.querySelectorAll("a, button, input:not([type=hidden]), select"))
        if (!named(it)) wrong.push(`no name: ${it.outerHTML}`);
    for (const it of document.querySelectorAll("svg[role=img]")) if (!it.ariaLabel) wrong.push("no name: svg");
    for (const [what, count] of [["main", 1], ["nav", 1], ["h1", 1], ["#told[role=status]", 1], ["html[lang]", 1]])
        if (document.querySelectorAll(what).length !== count) wrong.push(`not ${count}: ${what}`);
    const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
    if (new Set(ids).size !== ids.length) wrong.push("an id twice");
    const wide = document.documentElement.scrollWidth;
    if (wide > innerWidth) wrong.push(`${wide} wide in ${innerWidth}`);
    return wrong.join("\n");
})()"##;

#[test]
fn pages_can_be_used_on_telephones_by_keys_and_by_ear() {
    if !common::has("chromium") {
        return;
    }
    let shown = shown();
    let server = Server::start(shown.folder.path());
    let _growing = {
        let mut growing =
            Results::create(&shown.folder.path().join("new"), &scenario(1), &command(1)).unwrap();
        for record in &simulated(1)[..9] {
            growing.add(record.clone()).unwrap();
        }
        growing
    };
    let [a, b] = [0, 1].map(|index| encoded(&shown.runs[index]));
    let mut browser = Browser::start();
    let pages = [
        ("list", "/".to_owned()),
        ("run", format!("/run?id={a}")),
        ("compare", format!("/compare?run={a}&run={b}")),
        ("axes", format!("/compare?run={a}&along=delay")),
        ("missing", "/nothing".to_owned()),
    ];
    for (width, height) in [(1280, 900), (390, 844)] {
        for is_dark in [false, true] {
            browser.window(width, height, is_dark);
            for (name, path) in &pages {
                browser.open(&format!("{}{path}", server.origin()));
                browser.wait(&format!("location.href.endsWith({path:?})"));
                browser.wait("!document.querySelector('th[data-sorts]:not(:has(button))')");
                assert_eq!(browser.value(RULES), "", "{name}, {width} wide, dark: {is_dark}");
                let colour = if is_dark { "dark" } else { "light" };
                browser.picture(&format!("{name}-{width}-{colour}"));
            }
        }
    }
}
