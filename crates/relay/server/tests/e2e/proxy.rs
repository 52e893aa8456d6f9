//! The PROXY protocol, in and out, also against others that speak it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::netns::Netns;
use midspan_sys::process::die_with_parent;

use crate::observe::await_lines;
use crate::process::RelayProcess;
use crate::world::{BOX, CLIENT, FOREIGN, PATIENCE, SERVER, World, assert_reset, ip};

const PORT: u16 = 8080;
/// The client's own address is that of a proxy.
const FROM: &str = "from = [\"10.1.0.2/32\", \"fd01::2/128\"]";

fn start(world: &World, to: SocketAddr, proxy: &str, rest: &str) -> RelayProcess {
    let any = if to.is_ipv4() { "0.0.0.0" } else { "[::]" };
    RelayProcess::start(
        &world.relay,
        &format!(
            "interception = \"none\"\n{rest}\n[[forward]]\nlisten = \"{any}:{PORT}\"\n\
             to = \"{to}\"\nproxy_protocol = {{ {proxy} }}\n"
        ),
    )
}

fn connect(world: &World, version: usize) -> TcpStream {
    world.connect(SocketAddr::new(ip(BOX[version]), PORT)).unwrap()
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far
}

fn binary(command: u8, kind: u8, told: &[u8]) -> Vec<u8> {
    let length = (told.len() as u16).to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, kind][..], &length, told].concat()
}

#[test]
fn a_header_is_taken_off_whole_or_in_pieces() {
    let Some(world) = World::new() else { return };
    let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 1, 187];
    let headers = [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 80 443\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        binary(0x21, 0x11, &v4),
        // With a TLV that pads it.
        binary(0x21, 0x11, &[&v4[..], &[4, 7, 208], &[9; 2000]].concat()),
        binary(0x20, 0x00, &[]),
    ];
    for (version, server) in SERVER.into_iter().enumerate() {
        let (listener, address) = world.listen(server);
        let mut relay = start(&world, address, FROM, "");
        for header in &headers {
            for piece in [header.len(), header.len().div_ceil(3), 1] {
                let mut near = connect(&world, version);
                near.set_nodelay(true).unwrap();
                for piece in header.chunks(piece) {
                    near.write_all(piece).unwrap();
                }
                near.write_all(b"hello").unwrap();
                let mut far = accept(&listener);
                far.write_all(b"answer").unwrap();
                near.read_exact(&mut [0; 6]).unwrap();
                drop(near);
                let mut heard = String::new();
                far.read_to_string(&mut heard).unwrap();
                assert_eq!(heard, "hello");
            }
        }
        let counts = relay.until(|counts| counts["active"] == 0);
        assert_eq!((counts["closed"], counts["bytes_from_client"]), (15, 75), "{counts:?}");
        assert_eq!((counts["refused_header"], counts["refused_proxy"]), (0, 0));
    }
}

#[test]
fn whoever_may_not_tell_or_tells_nonsense_is_refused() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    listener.set_nonblocking(true).unwrap();
    let mut relay = start(&world, address, FROM, "");
    let to = SocketAddr::new(ip(BOX[0]), PORT);
    assert_reset(world.connect_from(SocketAddr::new(ip(FOREIGN), 0), to));
    assert_eq!(relay.until(|counts| counts["refused_proxy"] == 1)["refused_header"], 0);
    let tell = |said: &[u8]| {
        let mut near = connect(&world, 0);
        near.write_all(said).unwrap();
        near
    };
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 a b c d\r\n", &[b'P'; 5000]] {
        assert_eq!(tell(nonsense).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    // One that ends before its header does, and one that resets.
    drop(tell(b"PROXY TCP4"));
    crate::world::abort(tell(b"PROXY TCP4"));
    relay.until(|counts| counts["refused_header"] == 5);
    // Those that never finish, or never begin, do not stay.
    let mut silent = [tell(b"PROXY TCP4 192.0.2.1"), tell(b"")];
    assert_eq!(relay.counts()["refused_header"], 5);
    for near in &mut silent {
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let counts = relay.until(|counts| counts["refused_header"] == 7);
    assert_eq!((counts["accepted"], counts["refused_proxy"]), (0, 1));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn limits_and_log_are_for_the_client_that_is_told() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.jsonl");
    let settings = format!(
        "[limits]\nflows_per_client = 1\n[log]\naddresses = \"plain\"\n[flow_log]\npath = {path:?}\n"
    );
    let mut relay = start(&world, address, FROM, &settings);
    let mut open = Vec::new();
    for client in 1..4 {
        let mut near = connect(&world, 0);
        write!(near, "PROXY TCP4 192.0.2.{client} 192.0.2.9 80 443\r\n").unwrap();
        open.push((near, accept(&listener)));
    }
    let mut near = connect(&world, 0);
    near.write_all(b"PROXY TCP4 192.0.2.2 192.0.2.9 81 443\r\n").unwrap();
    assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let counts = relay.counts();
    assert_eq!((counts["accepted"], counts["refused_flows_per_client"]), (3, 1));
    for (told, (near, far)) in (1..).zip(open) {
        drop((near, far));
        relay.until(|counts| counts["active"] == 3 - told);
        let flow = &await_lines(&path, told as usize)[told as usize - 1];
        assert_eq!(flow["client"], format!("192.0.2.{told}:80"));
    }
}

/// Those who never finish their header have descriptors that flows need.
#[test]
fn unfinished_headers_are_limited() {
    let Some(world) = World::new() else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let mut relay = start(&world, address, FROM, "workers = 1\n[limits]\nflows = 3\n");
    let to = SocketAddr::new(ip(BOX[0]), PORT);
    // Those past the limit may be reset before they know that they are connected.
    let silent: Vec<_> = (0..10).map(|_| world.connect(to)).collect();
    let counts = relay.until(|counts| counts["refused_flows"] == 7);
    assert_eq!(counts["accepted"], 0);
    relay.until(|counts| counts["refused_header"] == 3);
    drop(silent);
    let mut near = connect(&world, 0);
    near.write_all(b"PROXY UNKNOWN\r\n").unwrap();
    drop(accept(&listener));
}

#[test]
fn servers_are_told_whose_connection_it_is() {
    let Some(world) = World::new() else { return };
    for (version, server) in SERVER.into_iter().enumerate() {
        for (send, told) in [("v1", false), ("v2", false), ("v1", true), ("v2", true)] {
            let (listener, address) = world.listen(server);
            let proxy = if told {
                format!("{FROM}, send = \"{send}\"")
            } else {
                format!("send = \"{send}\"")
            };
            let mut relay = start(&world, address, &proxy, "");
            let mut near = connect(&world, version);
            let (mut client, mut here) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
            if told {
                (client, here) = match version {
                    0 => ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:443".parse().unwrap()),
                    _ => {
                        ("[2001:db8::1]:80".parse().unwrap(), "[2001:db8::2]:443".parse().unwrap())
                    }
                };
                let family = ["TCP4", "TCP6"][version];
                write!(near, "PROXY {family} {} {} 80 443\r\n", client.ip(), here.ip()).unwrap();
            }
            near.write_all(b"hello").unwrap();
            let mut far = accept(&listener);
            drop(near);
            let mut heard = Vec::new();
            far.read_to_end(&mut heard).unwrap();
            drop(far);
            let expected = if send == "v1" {
                let family = ["TCP4", "TCP6"][version];
                let ports = (client.port(), here.port());
                format!("PROXY {family} {} {} {} {}\r\n", client.ip(), here.ip(), ports.0, ports.1)
                    .into_bytes()
            } else {
                let mut told = Vec::new();
                for ip in [client.ip(), here.ip()] {
                    match ip {
                        std::net::IpAddr::V4(ip) => told.extend(ip.octets()),
                        std::net::IpAddr::V6(ip) => told.extend(ip.octets()),
                    }
                }
                told.extend(client.port().to_be_bytes());
                told.extend(here.port().to_be_bytes());
                binary(0x21, [0x11, 0x21][version], &told)
            };
            assert_eq!(heard, [&expected[..], b"hello"].concat(), "{send} {told}");
            // It is nobody's payload.
            assert_eq!(relay.until(|counts| counts["active"] == 0)["bytes_to_server"], 5);
        }
    }
}

/// A program that is ended with the test.
struct Program {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Program {
    /// Starts one with a configuration file; `None`, and says so, if it is not installed.
    fn start(netns: &Netns, name: &str, arguments: &[&str], config: &str) -> Option<Program> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let config = config.replace("@DIR@", directory.path().to_str().unwrap());
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(name);
        command.args(arguments).arg(file).stdout(Stdio::null());
        match die_with_parent(netns.apply(&mut command)).spawn() {
            Ok(child) => Some(Program { child, _directory: directory }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("skipped: {name} is not installed");
                None
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP server that expects the header, and answers with what it was told.
fn haproxy_server(world: &World, at: SocketAddr) -> Option<Program> {
    let config = format!(
        "defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend all\n bind {at} accept-proxy\n \
         http-request return status 200 content-type text/plain lf-string \
         \"%[src] %[src_port] %[dst] %[dst_port]\"\n"
    );
    Program::start(&world.server, "haproxy", &["-db", "-q", "-f"], &config)
}

fn nginx_server(world: &World, at: SocketAddr) -> Option<Program> {
    let config = format!(
        "daemon off; master_process off; pid @DIR@/pid; error_log stderr crit;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path @DIR@/b; proxy_temp_path @DIR@/p;\n\
         fastcgi_temp_path @DIR@/f; uwsgi_temp_path @DIR@/u; scgi_temp_path @DIR@/s;\n\
         server {{ listen {at} proxy_protocol; location / {{ return 200 \"$proxy_protocol_addr \
         $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port\"; }} }} }}\n"
    );
    Program::start(&world.server, "nginx", &["-e", "stderr", "-c"], &config)
}

/// Asks by HTTP, again while there is nobody to answer yet.
fn get(world: &World, from: SocketAddr, to: SocketAddr) -> (SocketAddr, String) {
    let start = Instant::now();
    loop {
        let asked = world.connect_from(from, to).and_then(|mut near| {
            near.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            near.read_to_string(&mut answer)?;
            Ok((near.local_addr()?, answer))
        });
        match asked {
            Ok((own, answer)) if answer.contains("200 OK") => {
                return (own, answer.rsplit("\r\n\r\n").next().unwrap().to_owned());
            }
            other => assert!(start.elapsed() < PATIENCE, "{other:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn other_servers_understand_it() {
    let Some(world) = World::new() else { return };
    for server in SERVER {
        let version = usize::from(server == SERVER[1]);
        let at = SocketAddr::new(ip(server), 8000);
        for program in [haproxy_server, nginx_server] {
            let Some(_program) = program(&world, at) else { continue };
            for send in ["v1", "v2"] {
                let _relay = start(&world, at, &format!("send = \"{send}\""), "");
                let to = SocketAddr::new(ip(BOX[version]), PORT);
                let from = SocketAddr::new(ip(CLIENT[version]), 0);
                let (own, told) = get(&world, from, to);
                let expected = format!("{} {} {} {PORT}", own.ip(), own.port(), BOX[version]);
                assert_eq!(told, expected, "{send}");
            }
        }
    }
}

#[test]
fn other_proxies_are_understood() {
    let Some(world) = World::new() else { return };
    let at = SocketAddr::new(ip(SERVER[0]), 8000);
    let Some(_server) = haproxy_server(&world, at) else { return };
    for send in ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id"] {
        let _relay = start(&world, at, &format!("{FROM}, send = \"v2\""), "");
        let through = SocketAddr::new(ip(CLIENT[0]), 9000);
        let proxy = format!(
            "defaults\n mode tcp\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
             listen all\n bind {through}\n unique-id-format %[uuid()]\n server relay {}:{PORT} {send}\n",
            BOX[0]
        );
        let Some(_proxy) = Program::start(&world.client, "haproxy", &["-db", "-q", "-f"], &proxy)
        else {
            return;
        };
        let (own, told) = get(&world, SocketAddr::new(ip(FOREIGN), 0), through);
        assert_eq!(told, format!("{FOREIGN} {} {through}", own.port()).replace(":9000", " 9000"));
    }
    let _relay = start(&world, at, &format!("{FROM}, send = \"v1\""), "");
    let mut curl = Command::new("curl");
    let url = format!("http://{}:{PORT}/", BOX[0]);
    match world.client.apply(curl.args(["-s", "--haproxy-protocol", &url])).output() {
        Ok(out) => {
            let told = String::from_utf8(out.stdout).unwrap();
            assert!(told.starts_with("10.1.0.2 ") && told.ends_with(" 10.1.0.1 8080"), "{told}");
        }
        Err(error) => eprintln!("without curl: {error}"),
    }
}
