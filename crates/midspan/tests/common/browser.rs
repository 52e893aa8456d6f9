//! A headless Chromium that is told what to do as its user would: by mouse and keyboard, over its DevTools protocol.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::process::die_with_parent;
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket, client};

/// How long a page may take to become what is waited for, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Browser {
    child: Child,
    _profile: TempDir,
    socket: WebSocket<TcpStream>,
    calls: u64,
    /// What the browser told unasked.
    told: Vec<Value>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut chromium = Command::new("chromium");
        chromium
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-extensions", "--no-proxy-server", "--no-pings"])
            .args(["--hide-scrollbars", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = die_with_parent(&mut chromium).spawn().unwrap();
        let told_port = profile.path().join("DevToolsActivePort");
        let port = until("a port", || {
            let text = fs::read_to_string(&told_port).ok()?;
            text.lines().next()?.parse::<u16>().ok().filter(|_| text.lines().count() > 1)
        });
        let address = until("a page", || {
            let list: Value = serde_json::from_str(&get(port, "/json/list")?).ok()?;
            let page = list.as_array()?.iter().find(|target| target["type"] == "page")?;
            Some(page["webSocketDebuggerUrl"].as_str()?.to_owned())
        });
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = client(address, stream).unwrap();
        let mut browser = Browser { child, _profile: profile, socket, calls: 0, told: Vec::new() };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let call = json!({ "id": self.calls, "method": method, "params": parameters });
        self.socket.send(Message::text(call.to_string())).unwrap();
        loop {
            let message = self.socket.read().unwrap();
            let Ok(text) = message.to_text() else { continue };
            let Ok(mut answer) = serde_json::from_str::<Value>(text) else { continue };
            if answer["id"] == self.calls {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.told.push(answer);
        }
    }

    /// A window so wide and high, of a telephone if it is narrow, light or dark.
    pub(crate) fn window(&mut self, width: u32, height: u32, is_dark: bool) {
        let mobile = width < 600;
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile }),
        );
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// What an expression of the page is.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let mut answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression of the page is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(expression) != true {
            let page = self.value("document.body?.innerText ?? ''");
            assert!(Instant::now() < deadline, "never: {expression}\n{page}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses the mouse on what a selector finds; of a link over two lines on the first.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(() => {{ const it = document.querySelector({selector:?}); it.scrollIntoView({{block: 'center'}}); \
             const box = it.getClientRects()[0]; return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let parameters = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", parameters);
        }
    }

    /// Presses a key: `Tab`, `Enter`, ` `, `ArrowDown`.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, number, text) = match key {
            "Tab" => ("Tab", 9, ""),
            "Enter" => ("Enter", 13, "\r"),
            " " => ("Space", 32, " "),
            "ArrowDown" => ("ArrowDown", 40, ""),
            other => panic!("no key {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut parameters = json!({
                "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number,
            });
            if kind == "keyDown" && !text.is_empty() {
                parameters["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", parameters);
        }
    }

    /// Goes on by Tab until it is at what a selector finds.
    pub(crate) fn tab_to(&mut self, selector: &str) {
        for _ in 0..60 {
            if self.value(&format!("document.activeElement.matches({selector:?})")) == true {
                return;
            }
            self.press("Tab");
        }
        panic!("Tab never comes to {selector}");
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// The whole page as a picture, for those who change how it looks: into the folder that MIDSPAN_PICTURES names.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("MIDSPAN_PICTURES") else { return };
        let printed = self.call(
            "Page.captureScreenshot",
            json!({ "format": "png", "captureBeyondViewport": true }),
        );
        let file = fs::File::create(Path::new(&folder).join(format!("{name}.png"))).unwrap();
        let mut decode = Command::new("base64");
        let mut decode = decode.arg("--decode").stdin(Stdio::piped()).stdout(file).spawn().unwrap();
        let text = printed["data"].as_str().unwrap();
        decode.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(decode.wait().unwrap().success());
    }

    /// What went wrong on pages, and addresses that were asked for outside `origin`.
    pub(crate) fn troubles(&mut self, origin: &str) -> Vec<String> {
        self.value("0");
        let trouble = |event: &Value| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Log.entryAdded" => Some(parameters["entry"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = parameters["request"]["url"].as_str()?;
                    let is_ours = url.starts_with(origin) || url == "about:blank";
                    (!is_ours).then(|| url.to_owned())
                }
                _ => None,
            }
        };
        self.told.iter().filter_map(trouble).collect()
    }
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut bytes = Vec::new();
    // It does not always close: what came is enough if it is whole.
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut part) {
        bytes.extend(&part[..length]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && serde_json::from_str::<Value>(body).is_ok()
        {
            return Some(body.to_owned());
        }
    }
    None
}

fn until<T>(what: &str, mut is_there: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = is_there() {
            return found;
        }
        assert!(Instant::now() < deadline, "Chromium never gave {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
