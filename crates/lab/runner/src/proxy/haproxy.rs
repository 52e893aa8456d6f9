//! HAProxy as someone who wants it to win would set it up here: transparent on both sides,
//! splicing, one thread per core.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, Result};
use midspan_relay::{Config, Interception};
use midspan_sys::netns::Netns;
use midspan_sys::process;

use super::Proxy;
use crate::topology::client_prefixes;
use crate::traffic::SERVICE_PORT;

/// Where it takes the connections that are handed to it.
const PORT: u16 = 8743;

pub(super) fn start(mec: &Netns, server: Ipv4Addr) -> Result<Proxy> {
    let rules = Rules::install(mec)?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("haproxy.cfg");
    fs::write(&path, configuration(server)).context("cannot write HAProxy's configuration")?;
    let mut command = process::command("haproxy");
    command.arg("-db").arg("-f").arg(&path);
    let mut proxy = Proxy::spawn(command, mec, directory, || mec.run(is_listening)?)?;
    proxy.rules = Some(rules);
    Ok(proxy)
}

/// The same interception rules as the relay's, which live as long as the thread that installed
/// them.
#[derive(Debug)]
pub(super) struct Rules {
    /// Its closing ends the thread.
    _alive: Sender<()>,
}

impl Rules {
    fn install(mec: &Netns) -> Result<Rules> {
        let mec = mec.clone();
        let (alive, until) = channel();
        let (installed, outcome) = channel();
        thread::Builder::new().name("rules".into()).spawn(move || {
            let install = || -> Result<Interception> {
                mec.enter()?;
                let mut config = Config::new(client_prefixes(None));
                config.port = PORT;
                Ok(Interception::install(&config)?)
            };
            match install() {
                Ok(rules) => {
                    let _ = installed.send(Ok(()));
                    let _: Result<(), _> = until.recv();
                    drop(rules);
                }
                Err(error) => {
                    let _ = installed.send(Err(error));
                }
            }
        })?;
        outcome.recv().context("the thread that holds the rules ended")??;
        Ok(Rules { _alive: alive })
    }
}

fn configuration(server: Ipv4Addr) -> String {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "global\n  \
           maxconn 256\n  \
           nbthread {threads}\n\
         defaults\n  \
           mode tcp\n  \
           option splice-auto\n  \
           timeout connect 10s\n  \
           timeout client 1h\n  \
           timeout server 1h\n\
         listen split\n  \
           bind 0.0.0.0:{PORT} transparent\n  \
           source 0.0.0.0 usesrc client\n  \
           server service {server}:{SERVICE_PORT}\n"
    )
}

/// Whether a socket listens on the port, by the kernel's table.
fn is_listening() -> std::io::Result<bool> {
    const LISTEN: &str = "0A";
    let table = fs::read_to_string("/proc/thread-self/net/tcp")?;
    let port = format!(":{PORT:04X}");
    Ok(table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&port) && fields.nth(1) == Some(LISTEN)
    }))
}
