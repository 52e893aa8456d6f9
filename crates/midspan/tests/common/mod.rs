//! What the end-to-end tests share: a network with the relay on it, and a note where this machine
//! cannot have one.

#![allow(dead_code)] // Each test binary uses a part of it.

pub(crate) mod assist;

use std::path::Path;
use std::process::Command;

use midspan_emu::Backend;
use midspan_lab::proxy::Proxy;
use midspan_lab::topology::{SERVER, Topology};
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};

/// The program under test.
pub(crate) fn midspan() -> Command {
    Command::new(program())
}

/// Where it is.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_midspan"))
}

/// A second over each of two losses, quickly simulated.
pub(crate) const TWO_POINTS: &str = r#"
    name = "two-points"
    title = "Two points, both variants"
    seed = 1
    repetitions = 2
    variants = ["none", "midspan"]
    [path.access]
    up = [{ rate = { rate = "20 Mbit/s" } }, { loss = { share = "$loss" } }]
    down = [{ delay = "5 ms" }]
    [path.wide]
    up = [{ delay = "20 ms" }]
    down = [{ delay = "20 ms" }]
    [workload]
    kind = "bulk"
    direction = "upload"
    time = "1 s"
    series = "100 ms"
    [sweep]
    loss = ["0 %", "1 %"]
"#;

/// `midspan lab run` of a scenario, whose file is put into `folder`.
pub(crate) fn lab_run(folder: &Path, scenario: &str, out: &Path) -> Command {
    let file = folder.join("scenario.toml");
    std::fs::write(&file, scenario).unwrap();
    let mut command = midspan();
    command.args(["lab", "run"]).arg(file).arg("--out").arg(out);
    command
}

/// Whether network namespaces can be made and nft is there; says so if not.
pub(crate) fn can_run() -> bool {
    let can = midspan_sys::netns::Netns::create().is_ok() && has("nft");
    if !can {
        skip("needs root (or a user namespace) and nft");
    }
    can
}

/// Says that a test is skipped, where that may be.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("MIDSPAN_TEST_NO_SKIP").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

/// Whether a program is installed; says so if not.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// 50 Mbit/s with a loss on the radio that hurts, 1 ms to the MEC and 20 ms in all.
pub(crate) fn lossy_path() -> CellSpec {
    let text = r#"
        name = "lossy"
        title = "A path for tests"
        seed = 7
        repetitions = 1
        variants = ["midspan"]
        [path.access]
        up = [
            { rate = { rate = "50 Mbit/s", queue = { bytes = "250 KB" } } },
            { loss = { share = "0.5 %" } },
            { delay = "0.5 ms" },
        ]
        down = [
            { rate = { rate = "50 Mbit/s", queue = { bytes = "250 KB" } } },
            { loss = { share = "0.5 %" } },
            { delay = "0.5 ms" },
        ]
        [path.wide]
        up = [{ delay = "9.5 ms" }]
        down = [{ delay = "9.5 ms" }]
        [workload]
        kind = "bulk"
        direction = "upload"
        time = "1 s"
    "#;
    Scenario::parse(text, "lossy").unwrap().cells()[0].spec.clone()
}

/// A network with the relay running on its MEC. The relay ends with it.
pub(crate) struct Network {
    pub(crate) relay: Proxy,
    pub(crate) topology: Topology,
}

impl Network {
    pub(crate) fn with_relay() -> Network {
        let spec = lossy_path();
        let variant = Variant::Midspan;
        let backend = Backend::available();
        let topology = Topology::build(&spec, variant, &Traces::new(), 7, backend).unwrap();
        let relay = Proxy::start(variant, &topology.mec, &spec, SERVER.v4, program());
        Network { relay: relay.unwrap().unwrap(), topology }
    }

    /// Whether a connection of the UE has an end at the MEC.
    pub(crate) fn is_split(&self, port: u16) -> bool {
        let sockets = self.topology.mec.run(midspan_sys::sockdiag::tcp_sockets).unwrap().unwrap();
        sockets.iter().any(|socket| socket.local.port() == port)
    }
}

/// Sends a process a signal, such as `-TERM`, and says whether that could be done. By the shell, whose own `kill` is; the program is
/// of a package that not every system has.
pub(crate) fn signal(process: u32, signal: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", "kill \"$0\" \"$1\" 2>/dev/null", signal, &process.to_string()]);
    shell.status().unwrap().success()
}
