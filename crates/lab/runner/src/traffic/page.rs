//! Web pages over HTTP: a server that has them, and curl as the client.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use midspan_sys::process;
use tiny_http::{Header, Response, Server};

use super::Ends;

/// What to fetch.
#[derive(Debug, Clone)]
pub struct PagePlan {
    /// Bytes of the document.
    pub document: u64,
    /// Bytes of each object that it names.
    pub objects: Vec<u64>,
    /// How many times, one after the other.
    pub count: usize,
    /// When all of them must be through.
    pub deadline: Instant,
}

/// What the client says of one page. Times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct PageResult {
    /// From the start until `connect` returned.
    pub connected_s: f64,
    /// For the document and then for each object, from its request (the document's: from the start)
    /// until the client had it.
    pub times_s: Vec<f64>,
    /// From the start until the client had ended, its connection closed.
    pub ended_s: f64,
    /// Connections that the client made.
    pub connections: usize,
}

/// How often `look` is called while a page is fetched.
const LOOK: Duration = Duration::from_millis(20);

impl PagePlan {
    /// Fetches the pages. `look` is called with the page's number and the time since it began, fifty
    /// times a second.
    ///
    /// # Errors
    /// When there is no curl, an answer is not the one wanted, or the deadline passes.
    pub fn run(
        &self,
        ends: Ends<'_>,
        mut look: impl FnMut(usize, Duration) -> Result<()>,
    ) -> Result<Vec<PageResult>> {
        let listener = ends.listen_patiently().context("web server cannot listen")?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                // In the server's namespace to its end: the library connects to itself to stop.
                ends.server.run(|| self.serve(listener, &over))?
            });
            let fetched = (0..self.count)
                .map(|page| self.fetch(ends, |after| look(page, after)))
                .collect::<Result<Vec<_>>>();
            over.store(true, Ordering::Relaxed);
            let served = serving.join().expect("the web server's thread does not panic");
            let pages = fetched?;
            served.context("web server")?;
            Ok(pages)
        })
    }

    /// Answers requests until it is `over`.
    fn serve(&self, listener: TcpListener, over: &AtomicBool) -> Result<()> {
        let server = Server::from_listener(listener, None).map_err(|error| anyhow!("{error}"))?;
        while !over.load(Ordering::Relaxed) {
            let Some(request) = server.recv_timeout(Duration::from_millis(10))? else { continue };
            let number = request.url().strip_prefix('/').map(str::to_owned);
            let answer = match number.as_deref() {
                Some("") => Some((self.document(), "text/html")),
                Some(number) => self.object(number).map(|object| (object, "image/png")),
                None => None,
            };
            // A client that has gone says so itself.
            let _ = match answer {
                Some((body, kind)) => {
                    let header = Header::from_bytes("Content-Type", kind).expect("ASCII");
                    request.respond(Response::from_data(body).with_header(header))
                }
                None => request.respond(Response::empty(404)),
            };
        }
        Ok(())
    }

    /// HTML that names every object, filled up to its size.
    fn document(&self) -> Vec<u8> {
        let mut text = String::from("<!doctype html><title>page</title>");
        (0..self.objects.len()).for_each(|number| text.push_str(&format!("<img src=/{number}>")));
        let mut body = text.into_bytes();
        body.resize(usize::try_from(self.document).unwrap_or(usize::MAX), b' ');
        body
    }

    fn object(&self, number: &str) -> Option<Vec<u8>> {
        let size = *self.objects.get(number.parse::<usize>().ok()?)?;
        Some(vec![0x5a; usize::try_from(size).ok()?])
    }

    /// The sizes that answers must have, the document's first.
    fn sizes(&self) -> impl Iterator<Item = u64> {
        [self.document].into_iter().chain(self.objects.iter().copied())
    }

    /// Has curl fetch everything over one connection.
    fn fetch(
        &self,
        ends: Ends<'_>,
        mut look: impl FnMut(Duration) -> Result<()>,
    ) -> Result<PageResult> {
        let begin = Instant::now();
        let mut command = process::command("curl");
        // Without the user's own configuration.
        command.args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--http1.1"]);
        command.args(["--write-out", WRITE_OUT]);
        let urls =
            [String::new()].into_iter().chain((0..self.objects.len()).map(|n| n.to_string()));
        for path in urls {
            let url = format!("http://{}/{path}", ends.address);
            command.args(["--output", "/dev/null", &url]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = self.spawn(ends, &mut command)?;
        let mut looks = 0;
        while client.try_wait()?.is_none() {
            let now = Instant::now();
            if now >= self.deadline {
                client.kill()?;
                client.wait()?;
                bail!("the workload's limit has passed");
            }
            if now.duration_since(begin) >= LOOK * looks {
                look(now.duration_since(begin))?;
                looks += 1;
            }
            thread::sleep(LOOK / 4);
        }
        let ended_s = begin.elapsed().as_secs_f64();
        let output = client.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        ensure!(output.status.success(), "curl: {said}");
        self.read(&String::from_utf8_lossy(&output.stdout), ended_s)
    }

    fn spawn(&self, ends: Ends<'_>, command: &mut Command) -> Result<Child> {
        let child = ends.client.apply(process::die_with_parent(command)).spawn();
        child.context("cannot start curl, which is the web client: is it installed?")
    }

    /// What curl wrote.
    fn read(&self, text: &str, ended_s: f64) -> Result<PageResult> {
        let mut result =
            PageResult { connected_s: 0.0, times_s: Vec::new(), ended_s, connections: 0 };
        let mut lines = text.lines();
        for (number, size) in self.sizes().enumerate() {
            let line = lines.next().unwrap_or_default();
            let fields: Vec<f64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
            let &[code, bytes, connected, total, connections] = &fields[..] else {
                bail!("curl said `{line}` of request {number}");
            };
            ensure!(code == 200.0, "request {number} was answered with HTTP status {code}");
            ensure!(bytes == size as f64, "request {number}: {bytes} of {size} bytes arrived");
            if number == 0 {
                result.connected_s = connected;
            }
            result.times_s.push(total);
            result.connections += connections as usize;
        }
        Ok(result)
    }
}

/// Of each request: status, bytes of the body, seconds until connected and in all, connections made.
const WRITE_OUT: &str =
    "%{http_code} %{size_download} %{time_connect} %{time_total} %{num_connects}\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> PagePlan {
        PagePlan { document: 5000, objects: vec![10, 20], count: 1, deadline: Instant::now() }
    }

    #[test]
    fn the_document_names_the_objects_and_has_its_size() {
        let document = plan().document();
        assert_eq!(document.len(), 5000);
        let text = String::from_utf8(document).unwrap();
        assert!(text.contains("<img src=/0><img src=/1>"), "{text}");
        assert_eq!(plan().object("1").unwrap().len(), 20);
        assert_eq!(plan().object("2"), None);
        assert_eq!(plan().object("x"), None);
    }

    #[test]
    fn what_curl_says_is_read_and_checked() {
        let good = "200 5000 0.01 2.5 1\n200 10 0.0 0.1 0\n200 20 0.0 0.2 0\n";
        let result = plan().read(good, 3.0).unwrap();
        assert_eq!(result.times_s, [2.5, 0.1, 0.2]);
        assert_eq!((result.connected_s, result.ended_s, result.connections), (0.01, 3.0, 1));
        for bad in ["", "200 5000 0.01 2.5 1\n404 10 0 0 0\n", "200 4999 0 0 1\n", "nothing"] {
            assert!(plan().read(bad, 3.0).is_err(), "{bad}");
        }
    }
}
