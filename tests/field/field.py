#!/usr/bin/env python3
"""The relay on boxes as operators have them: what works without it works with it.

A client, a router, the box with the relay, and a server, each a network namespace. On the box are the real rules of
firewalld and ufw, NAT, forward rules, strict reverse path filters; the path has a smaller MTU, or answers by another way.
Through it go programs that nobody here wrote. Every cell is compared with the same without a relay.

    tests/field/field.py [--table FILE] [--only ENVIRONMENT,...] [--mode MODE,...] [--keep-logs FOLDER]

Root; nothing outside the namespaces is changed. What the machine lacks is said, and left out.
"""

import argparse
import atexit
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIDSPAN = ROOT / "target/release/midspan"
CLIENT, SERVER, PORTAL = "10.1.0.2", "10.2.0.2", "203.0.113.10"
CLIENT6, SERVER6 = "fd01::2", "fd02::2"
PATIENCE = 20
# What the server's programs listen at.
SSH, HTTP, TLS, IPERF, FTP, SQL, SMTP, BULK, RESET, FORBIDDEN = 22, 80, 443, 5201, 21, 5432, 25, 7001, 7002, 7003


MODES = {
    "none": None,
    "early": 'interception = "bpf"\nhandshake = "early"\n',
    "learned": 'interception = "bpf"\nhandshake = "learned"\n',
    "confirmed": 'interception = "bpf"\nhandshake = "confirmed"\n',
    "nftables": 'interception = "nftables"\nhandshake = "early"\n',
}


class World:
    """The namespaces, and what runs in them; all of it goes with the process."""

    def __init__(self, folder):
        self.folder = folder
        self.name = f"field{os.getpid()}"
        self.children = []
        self.hosts = {host: f"{self.name}-{host}" for host in ("client", "router", "box", "server")}

    def build(self):
        for name in self.hosts.values():
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
        for host in self.hosts:
            for key in ("net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.all.accept_dad=0"):
                self.run(host, f"sysctl -qw {key}")
        for host in ("router", "box"):
            self.run(host, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        self.link("client", "uplink", "router", "users", "10.1.0.2/24", "10.1.0.1/24", "fd01::2/64", "fd01::1/64")
        self.link("router", "core", "box", "access", "10.9.0.1/24", "10.9.0.2/24", "fd09::1/64", "fd09::2/64")
        self.link("box", "wide", "server", "net", "10.2.0.1/24", "10.2.0.2/24", "fd02::1/64", "fd02::2/64")
        for host, via, via6 in (("client", "10.1.0.1", "fd01::1"), ("router", "10.9.0.2", "fd09::2"),
                                ("box", "10.2.0.2", "fd02::2"), ("server", "10.2.0.1", "fd02::1")):
            self.run(host, f"ip route add default via {via}")
            self.run(host, f"ip -6 route add default via {via6}")
        self.run("box", "ip route add 10.1.0.0/24 via 10.9.0.1")
        self.run("box", "ip -6 route add fd01::/64 via fd09::1")

    def link(self, one, name, other, far, address, far_address, address6, far_address6):
        sh(f"ip link add {name} netns {self.hosts[one]} type veth peer name {far} netns {self.hosts[other]}")
        for host, device, addresses in ((one, name, (address, address6)), (other, far, (far_address, far_address6))):
            for one_of in addresses:
                self.run(host, f"ip address add {one_of} dev {device}")
            self.run(host, f"ip link set {device} up")

    def command(self, host, command):
        # Not `ip netns exec`, which hides the BPF file system.
        words = command if isinstance(command, list) else ["sh", "-c", command]
        return ["nsenter", f"--net=/run/netns/{self.hosts[host]}", *words]

    def run(self, host, command, **options):
        options.setdefault("check", True)
        return subprocess.run(self.command(host, command), capture_output=True, text=True, timeout=PATIENCE + 10,
                              stdin=subprocess.DEVNULL, **options)

    def start(self, host, command, log, **options):
        out = open(self.folder / log, "w")
        child = subprocess.Popen(self.command(host, command), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                 start_new_session=True, **options)
        self.children.append(child)
        return child

    def close(self):
        for child in reversed(self.children):
            stop(child)
        self.children.clear()
        for name in self.hosts.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def stop(child):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(5)
            break
        except subprocess.TimeoutExpired:
            continue


def sh(command):
    ended = subprocess.run(command, shell=True, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{command}: exit status {ended.returncode}: {ended.stderr.strip()}")


def within(world, host):
    """Has the calling thread be in a host's namespace."""
    libc = __import__("ctypes").CDLL(None, use_errno=True)
    with open(f"/run/netns/{world.hosts[host]}") as netns:
        if libc.setns(netns.fileno(), 0x40000000):
            raise OSError("setns")


def until(condition, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} in {patience} s")
        time.sleep(0.02)


# The server's programs.


def serve(world):
    folder = world.folder
    folder.chmod(0o755)
    www = folder / "www"
    www.mkdir()
    (www / "small").write_bytes(os.urandom(4000))
    (www / "large").write_bytes(os.urandom(2_000_000))
    if shutil.which("sshd"):
        Path("/run/sshd").mkdir(exist_ok=True)
        for key in ("host", "user"):
            sh(f"ssh-keygen -q -t ed25519 -N '' -f {folder}/{key}")
        shutil.copy(folder / "user.pub", folder / "authorized")
        (folder / "sshd.conf").write_text(
            f"Port {SSH}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\n"
            f"PermitRootLogin yes\nUsePAM no\nPidFile none\nListenAddress 0.0.0.0\nListenAddress ::\n")
        world.start("server", [shutil.which("sshd"), "-D", "-e", "-f", f"{folder}/sshd.conf"], "sshd.log")
    if shutil.which("nginx"):
        sh(f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=field -keyout {folder}/tls.key -out {folder}/tls.crt")
        (folder / "nginx.conf").write_text(f"""
daemon off; pid {folder}/nginx.pid; error_log stderr; user root; worker_processes 1;
events {{}}
http {{
    access_log off; client_max_body_size 10m; client_body_temp_path {folder}; root {www};
    server {{
        listen {HTTP}; listen [::]:{HTTP}; listen {TLS} ssl http2; listen [::]:{TLS} ssl http2;
        ssl_certificate {folder}/tls.crt; ssl_certificate_key {folder}/tls.key;
        location /refused {{ return 501 "no\\n"; }}
        location /posted {{ proxy_pass http://127.0.0.1:{HTTP}/small; proxy_method GET; }}
    }}
}}""")
        world.start("server", ["nginx", "-c", f"{folder}/nginx.conf"], "nginx.log")
    if shutil.which("iperf3"):
        world.start("server", ["iperf3", "-s"], "iperf3.log")
    if shutil.which("vsftpd"):
        ftp = folder / "ftp"
        ftp.mkdir()
        shutil.copy(www / "large", ftp / "large")
        (folder / "vsftpd.conf").write_text(
            "listen=NO\nlisten_ipv6=YES\nanonymous_enable=YES\nlocal_enable=NO\nconnect_from_port_20=NO\nbackground=NO\n"
            f"anon_root={ftp}\nseccomp_sandbox=NO\nno_anon_password=YES\nftp_username=ftp\nport_promiscuous=YES\n"
            "secure_chroot_dir=/var/empty\nisolate_network=NO\n")
        Path("/var/empty").mkdir(exist_ok=True)
        world.start("server", ["vsftpd", f"{folder}/vsftpd.conf"], "vsftpd.log")
    programs = postgresql()
    if programs:
        data = folder / "sql"
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
        as_postgres = "setpriv --reuid postgres --regid postgres --clear-groups"
        sh(f"cd / && {as_postgres} {programs}/initdb -D {data} -A trust -N >/dev/null")
        (data / "pg_hba.conf").write_text("host all all all trust\n")
        world.start("server", f"cd / && exec {as_postgres} {programs}/postgres -D {data} -h '*' -p {SQL} -k ''", "sql.log")
    if shutil.which("smtpd") and Path("/etc/smtpd.conf").exists():
        (folder / "smtpd.conf").write_text(
            f"listen on 0.0.0.0 port {SMTP}\nlisten on :: port {SMTP}\n"
            f'action "keep" maildir "{folder}/mail"\nmatch from any for any action "keep"\n')
        # Who connects is looked up in the DNS, of which there is none.
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        world.start("server", f"exec unshare -m sh -c 'mount --bind {folder}/resolv.conf /etc/resolv.conf && "
                              f"exec smtpd -d -f {folder}/smtpd.conf'", "smtpd.log")
    thread = threading.Thread(target=serve_own, args=(world,), daemon=True)
    thread.start()
    for port in listened():
        until(lambda: is_open(world, port), f"nobody listens at port {port}")


def postgresql():
    """Where the newest server's programs are, or none: the clients' package has a folder there too."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def is_installed(server):
    return shutil.which(server) or (server == "postgres" and postgresql())


def listened():
    ports = [BULK, RESET, FORBIDDEN]
    for program, of in (("sshd", [SSH]), ("nginx", [HTTP, TLS]), ("iperf3", [IPERF]), ("vsftpd", [FTP])):
        if shutil.which(program):
            ports += of
    if postgresql():
        ports.append(SQL)
    if shutil.which("smtpd"):
        ports.append(SMTP)
    return ports


def is_open(world, port):
    found = world.run("server", f"ss -Htln 'sport = :{port}'", check=False)
    return bool(found.stdout.strip())


def serve_own(world):
    """Bulk both ways at once, and who resets what it has read."""
    within(world, "server")

    def listen(port, handle):
        listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=200)

        def loop():
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=guarded, args=(handle, taken), daemon=True).start()
        threading.Thread(target=loop, daemon=True).start()

    def guarded(handle, taken):
        taken.settimeout(PATIENCE)
        try:
            with taken:
                handle(taken)
        except OSError:
            pass

    listen(BULK, duplex)
    listen(RESET, reset_when_told)
    listen(FORBIDDEN, lambda taken: taken.sendall(b"reached"))


BLOCK = bytes(range(256)) * 256
AMOUNT = 2_000_000


def duplex(stream):
    """2 MB each way at the same time, and a FIN."""
    failure = []

    def send():
        try:
            left = AMOUNT
            while left:
                left -= stream.send(BLOCK[:min(left, len(BLOCK))])
            stream.shutdown(socket.SHUT_WR)
        except OSError as error:
            failure.append(error)
    sender = threading.Thread(target=send)
    sender.start()
    got = 0
    while part := stream.recv(1 << 16):
        got += len(part)
    sender.join()
    if failure or got != AMOUNT:
        raise OSError(f"{got} of {AMOUNT} bytes, {failure}")


def reset_when_told(stream):
    """Resets the client, or waits for its reset."""
    word = stream.recv(1)
    if word == b"r":
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif word == b"w":
        stream.sendall(b"k")
        try:
            stream.recv(1)
            RESETS.append("ended")
        except ConnectionResetError:
            RESETS.append("reset")


RESETS = []


# What the client does. Each gives nothing, or what went wrong.


def ran(world, command, host="client"):
    try:
        done = world.run(host, f"timeout {PATIENCE} sh -c {quote(command)}", check=False)
    except subprocess.TimeoutExpired:
        return "time"
    if done.returncode == 0:
        return None
    return "time" if done.returncode == 124 else (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]


def quote(command):
    return "'" + command.replace("'", "'\\''") + "'"


def ssh(world, to):
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -o LogLevel=ERROR"
    return ran(world, f"test $(ssh {options} -i {world.folder}/user {to} 'head -c 500000 /dev/zero' | wc -c) = 500000")


def http1(world, to):
    return ran(world, f"for i in 1 2 3 4 5; do curl -sf http://{url(to)}/small | cmp - {world.folder}/www/small || exit 1; done; "
                      f"curl -sf http://{url(to)}/large | cmp - {world.folder}/www/large")


def http2(world, to):
    return ran(world, f"test $(curl -skf --http2 -o {world.folder}/got -w %{{http_version}} https://{url(to)}/large) = 2 && "
                      f"cmp {world.folder}/got {world.folder}/www/large")


def early_answer(world, to):
    """A server that answers before it has read all of a request."""
    one = (f"test $(head -c 200000 /dev/zero | curl -s -o /dev/null -w %{{http_code}} --data-binary @- "
           f"-H Expect: http://{url(to)}/refused) = 501")
    return ran(world, f"for i in 1 2 3 4 5 6 7 8 9 10; do {one} || exit 1; done")


def iperf3(world, to):
    # Its server takes a moment before it takes the next one.
    one = "for i in 1 2 3 4 5; do iperf3 -c {} {} && break; test $i = 5 && exit 1; sleep 0.2; done"
    return ran(world, "; ".join(one.format(to, how) for how in ("-n 5M", "-n 5M -R", "-n 2M --bidir")))


def ftp_passive(world, to):
    return ftp(world, to, "on")


def ftp_active(world, to):
    return ftp(world, to, "off")


def ftp(world, to, passive):
    return ran(world, f"lftp -e 'set ftp:passive-mode {passive}; set net:timeout 4; set net:max-retries 1; set ftp:use-mode-z no; "
                      f"get -c large -o {world.folder}/ftp-got; bye' ftp://{url(to)} && cmp {world.folder}/ftp-got "
                      f"{world.folder}/www/large; s=$?; rm -f {world.folder}/ftp-got; exit $s")


def sql(world, to):
    query = "select length(string_agg(md5(n::text), '')) from generate_series(1, 50000) n"
    copied = "copy (select md5(n::text) from generate_series(1, 30000) n) to stdout"
    return ran(world, f"test $(psql -h {to} -p {SQL} -U postgres -Atc {quote(query)} postgres) = 1600000 && "
                      f"test $(psql -h {to} -p {SQL} -U postgres -Atc {quote(copied)} postgres | wc -l) = 30000")


def smtp(world, to):
    return ran(world, f"printf 'Subject: field\\n\\n%040000d\\n' 7 | fold -w 70 | curl -s --mail-from a@example.org "
                      f"--mail-rcpt root@example.org -T - smtp://{url(to)}")


def in_client(world, work):
    """Runs `work` in the client's namespace."""
    said = []

    def go():
        within(world, "client")
        try:
            said.append(work())
        except OSError as error:
            said.append(str(error))
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    return said[0]


def bulk(world, to):
    def work():
        for _ in range(25):
            with socket.create_connection((to, BULK), PATIENCE) as stream:
                duplex(stream)
    return in_client(world, work)


def resets(world, to):
    def work():
        for _ in range(10):
            with socket.create_connection((to, RESET), PATIENCE) as stream:
                stream.sendall(b"r")
                try:
                    if stream.recv(1) == b"":
                        return "the server's reset did not arrive"
                except ConnectionResetError:
                    pass
        RESETS.clear()
        for _ in range(10):
            with socket.create_connection((to, RESET), PATIENCE) as stream:
                stream.sendall(b"w")
                stream.recv(1)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: len(RESETS) == 10, "clients' resets did not all arrive", 5)
        return None if RESETS == ["reset"] * 10 else f"clients' resets: {RESETS}"
    try:
        return in_client(world, work)
    except RuntimeError as error:
        return str(error)


def forbidden(world, to):
    """What rules of the box may keep clients from."""
    def work():
        with socket.create_connection((to, FORBIDDEN), 3) as stream:
            stream.settimeout(3)
            return None if stream.recv(1) else "nothing"
    return in_client(world, work) and "refused"


def url(address):
    return f"[{address}]" if ":" in address else address


PROGRAMS = {
    "ssh": ("ssh", "sshd", ssh),
    "curl h1": ("curl", "nginx", http1),
    "curl h2": ("curl", "nginx", http2),
    "curl 501": ("curl", "nginx", early_answer),
    "iperf3": ("iperf3", "iperf3", iperf3),
    "ftp passive": ("lftp", "vsftpd", ftp_passive),
    "ftp active": ("lftp", "vsftpd", ftp_active),
    "postgresql": ("psql", "postgres", sql),
    "smtp": ("curl", "smtpd", smtp),
    "2 MB x 25": ("python3", "python3", bulk),
    "resets x 20": ("python3", "python3", resets),
    "forbidden": ("python3", "python3", forbidden),
}


# The boxes.


def nft(world, rules, host="box"):
    subprocess.run(world.command(host, ["nft", "-f", "-"]), input=rules, text=True, check=True, capture_output=True)


def plain(world):
    pass


def masquerade(world):
    nft(world, 'table inet nat { chain after { type nat hook postrouting priority srcnat; oifname "wide" masquerade; }; }')


def dnat(world):
    nft(world, f'table ip nat {{ chain before {{ type nat hook prerouting priority dstnat; ip daddr {PORTAL} dnat to {SERVER}; }}; }}')


def forward_drop(world):
    nft(world, "table inet filter { chain forward { type filter hook forward priority filter; policy drop; "
               "ct state established,related accept; ct state invalid drop; "
               f"tcp dport {FORBIDDEN} reject with icmpx admin-prohibited; accept; }}; "
               "chain input { type filter hook input priority filter; ct state invalid drop; }; "
               "chain output { type filter hook output priority filter; ct state invalid drop; }; }")


def strict(world):
    world.run("box", "for i in all default access wide; do sysctl -qw net.ipv4.conf.$i.rp_filter=1; done")
    nft(world, "table inet rpf { chain p { type filter hook prerouting priority filter + 10; "
               'iifname { "access", "wide" } fib saddr . mark . iif oif missing drop; }; }')


def small_mtu(world):
    # Clients that let routers cut their packets, and one that does.
    # By the route: a link of a smaller MTU here would also take in no larger packets, and say nothing.
    world.run("router", "ip route change default via 10.9.0.2 mtu 1280 && ip -6 route change default via fd09::2 mtu 1280")
    world.run("client", "sysctl -qw net.ipv4.ip_no_pmtu_disc=1 net.ipv4.tcp_mtu_probing=0")


def asymmetric(world):
    world.link("router", "back", "server", "bypass", "10.8.0.1/24", "10.8.0.2/24", "fd08::1/64", "fd08::2/64")
    world.run("server", "ip route add 10.1.0.0/24 via 10.8.0.1")
    world.run("server", "ip -6 route add fd01::/64 via fd08::1")


def private_etc(world, folder):
    """A mount namespace in which a folder of the machine's is a copy."""
    copy = world.folder / ("etc-" + folder.strip("/").replace("/", "-"))
    shutil.copytree(folder, copy)
    return ["unshare", "-m", "sh", "-c", f'mount --bind {copy} {folder} && exec "$@"', "sh"]


def ufw(world):
    inside = private_etc(world, "/etc/ufw")
    default = world.folder / "etc-ufw-default"
    text = Path("/etc/default/ufw").read_text().replace("IPT_MODULES", "# IPT_MODULES")
    default.write_text(text)
    steps = ["ufw --force reset", "ufw default deny incoming", "ufw default allow outgoing", "ufw default deny routed",
             f"ufw route reject in on access out on wide to any port {FORBIDDEN} proto tcp",
             "ufw route allow in on access out on wide", "ufw --force enable"]
    script = f"mount --bind {default} /etc/default/ufw && " + " && ".join(steps)
    world.run("box", [*inside, "sh", "-c", script])


def firewalld(world):
    etc = world.folder / "etc-firewalld"
    shutil.copytree("/etc/firewalld", etc)
    offline = f"firewall-offline-cmd --system-config {etc}"
    sets = ["--zone=internal --add-interface=access", "--zone=external --add-interface=wide",
            "--new-policy=out", "--policy=out --add-ingress-zone=internal", "--policy=out --add-egress-zone=external",
            "--policy=out --set-target=ACCEPT",
            f"--policy=out --add-rich-rule='rule family=ipv4 port port={FORBIDDEN} protocol=tcp reject'"]
    for one in sets:
        done = subprocess.run(f"{offline} {one}", shell=True, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"firewall-offline-cmd {one}: {done.stdout} {done.stderr}")
    bus = world.folder / "bus"
    (world.folder / "bus.conf").write_text(
        "<!DOCTYPE busconfig PUBLIC '-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN' "
        "'http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd'><busconfig><type>system</type>"
        f"<listen>unix:path={bus}</listen><auth>EXTERNAL</auth><policy context='default'><allow own='*'/>"
        "<allow send_destination='*'/><allow receive_sender='*'/><allow user='*'/></policy></busconfig>")
    world.start("box", ["dbus-daemon", f"--config-file={world.folder}/bus.conf", "--nofork"], "bus.log")
    until(bus.exists, "there is no message bus")
    environment = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={bus}"}
    world.start("box", [shutil.which("firewalld"), "--nofork", "--nopid", "--system-config", str(etc), "--log-target", "console"],
                "firewalld.log", env=environment)
    until(lambda: "policy_out" in world.run("box", "nft list ruleset", check=False).stdout, "firewalld has no rules")
    time.sleep(1)


ENVIRONMENTS = {
    "plain": plain,
    "masquerade": masquerade,
    "dnat": dnat,
    "forward drop": forward_drop,
    "firewalld": firewalld,
    "ufw": ufw,
    "rp_filter": strict,
    "MTU 1280": small_mtu,
    "asymmetric": asymmetric,
}
# Where a relay is known not to do what it should, as docs/reference/field.md says.
KNOWN = {("asymmetric", "early"), ("asymmetric", "nftables")}
NEEDS = {"firewalld": ["firewalld", "dbus-daemon"], "ufw": ["ufw"]}


class Relay:
    def __init__(self, world, settings):
        (world.folder / "relay.toml").write_text('clients = ["10.1.0.0/16", "fd01::/16"]\ndrain_timeout = "1 s"\n' + settings)
        self.log = world.folder / "relay.log"
        self.child = world.start("box", [str(MIDSPAN), "relay", "--config", str(world.folder / "relay.toml")], "relay.log",
                                 env=os.environ | {"MIDSPAN_LOG": "info", "NO_COLOR": "1"})
        until(lambda: "relay ready" in self.said() or self.child.poll() is not None, "the relay is not ready")

    def said(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text())

    def refusal(self):
        return None if self.child.poll() is None else self.said().strip().splitlines()[-1]

    def counts(self):
        stop(self.child)
        return {name: int(count) for name, count in re.findall(r"(\w+) (\d+)$", self.said(), re.M)}


def destination(environment):
    return PORTAL if environment == "dnat" else SERVER


def cell(environment, mode, logs):
    """What each program made of a box, by name; and what the relay says of it."""
    folder = Path(tempfile.mkdtemp(prefix="midspan-field-"))
    world = World(folder)
    atexit.register(world.close)
    try:
        world.build()
        serve(world)
        ENVIRONMENTS[environment](world)
        relay = Relay(world, MODES[mode]) if MODES[mode] is not None else None
        if relay and (why := relay.refusal()):
            return None, why
        results = {}
        for name, (client, server, work) in PROGRAMS.items():
            if not shutil.which(client) or not is_installed(server):
                continue
            said = work(world, destination(environment))
            if environment != "dnat" and not said and name not in ("ftp active",):
                said = work(world, SERVER6)
                said = said and f"IPv6: {said}"
            results[name] = said or "ok"
        counts = relay.counts() if relay else {}
        return results, counts
    finally:
        if logs:
            shutil.copytree(folder, logs / f"{environment}-{mode}".replace(" ", "-"), ignore=shutil.ignore_patterns("sql", "www", "ftp*", "bus"),
                            dirs_exist_ok=True, ignore_dangling_symlinks=True)
        world.close()
        atexit.unregister(world.close)
        shutil.rmtree(folder, ignore_errors=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--table", type=Path)
    arguments.add_argument("--only")
    arguments.add_argument("--mode")
    arguments.add_argument("--keep-logs", type=Path)
    arguments = arguments.parse_args()
    if os.geteuid() != 0:
        print("skipped: this takes root", file=sys.stderr)
        return 0
    wanted = arguments.only.split(",") if arguments.only else list(ENVIRONMENTS)
    modes = arguments.mode.split(",") if arguments.mode else [mode for mode in MODES if mode != "none"]
    rows, worse = [], []
    for environment in wanted:
        missing = [program for program in NEEDS.get(environment, []) if not shutil.which(program)]
        if missing:
            print(f"{environment}: skipped, {', '.join(missing)} is not installed", flush=True)
            continue
        control, _ = cell(environment, "none", arguments.keep_logs)
        print(f"{environment:12} {'none':10} " + told(control), flush=True)
        for mode in modes:
            results, counts = cell(environment, mode, arguments.keep_logs)
            if results is None:
                print(f"{environment:12} {mode:10} does not start: {counts}", flush=True)
                rows.append((environment, mode, None, counts))
                continue
            differ = {name: said for name, said in results.items() if (said == "ok") != (control[name] == "ok")}
            if (environment, mode) not in KNOWN:
                worse += [f"{environment}, {mode}, {name}: {said}, without the relay {control[name]}"
                          for name, said in differ.items()]
            passed = {name: count for name, count in counts.items() if name.startswith("pass_")}
            print(f"{environment:12} {mode:10} " + told(results) + f"  split {counts.get('accepted', 0)}, {passed}", flush=True)
            rows.append((environment, mode, (control, results, differ), counts))
    if arguments.table:
        arguments.table.write_text(table(rows))
    for line in worse:
        print(f"WORSE  {line}")
    return 1 if worse else 0


def told(results):
    bad = [f"{name}: {said}" for name, said in results.items() if said != "ok"]
    return f"{len(results) - len(bad)} of {len(results)} work" + (f" ({'; '.join(bad)})" if bad else "")


def table(rows):
    lines = ["| box | relay | as without the relay | connections | not as without |", "|---|---|---|---|---|"]
    for environment, mode, found, counts in rows:
        if found is None:
            lines.append(f"| {environment} | {mode} | not started | | {counts} |")
            continue
        _, results, differ = found
        passed = sum(count for name, count in counts.items() if name.startswith("pass_") and name != "pass_again")
        lines.append(f"| {environment} | {mode} | {len(results) - len(differ)} of {len(results)} | {counts.get('accepted', 0)} split, "
                     f"{passed} passed | {'; '.join(f'{name}: {said}' for name, said in differ.items())} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
