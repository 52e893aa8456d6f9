#!/usr/bin/env python3
"""Whether the relay's account of connections is what their clients' own clocks say, and the gain with it.

Transfers by curl, of several sizes, across a radio link that loses packets and a wide area, from a server with each of
these congestion controls. Half of them are held out (`policy.holdout`). For each size: how long they took by curl's clock
and by the flow log, split and not, and how much faster split ones are by either.

    tests/field/accounts.py [--transfers N] [--server-control NAME,...] [--loss PERCENT]
                            [--at-once N] [--slot TIME] [--also TOML] [--record]

Root; nothing outside the namespaces of `midspan lab shell` is changed. Ends with 1 if a gain by the account is further
than a twentieth from that by the clients' clocks.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from recording import keep
from web import nginx

ROOT = Path(__file__).resolve().parents[2]
MIDSPAN = ROOT / "target/release/midspan"
SIZES = {"10 kB": 10_000, "100 kB": 100_000, "1 MB": 1_000_000, "5 MB": 5_000_000}
# Of one in so many transfers of the smaller sizes.
SHARES = {"10 kB": 4, "100 kB": 4, "1 MB": 3, "5 MB": 2}
PORT = 8080
PATIENCE = 30
# How far the two gains may be apart.
APART = 0.05

SCENARIO = """
name = "accounts"
title = "Accounts beside clients' clocks"
seed = 1
repetitions = 1
variants = ["none", "midspan"]
[path.access]
up = [{{ delay = "10 ms" }}]
down = [{{ rate = {{ rate = "100 Mbit/s", queue = {{ bytes = "1 MB" }} }} }}, {{ loss = {{ share = "{loss} %" }} }}, {{ delay = "10 ms" }}]
[path.wide]
up = [{{ delay = "25 ms" }}]
down = [{{ delay = "25 ms" }}]
[hosts]
server = {{ congestion_control = "{control}" }}
[workload]
kind = "bulk"
direction = "download"
time = "2 s"
warmup = "1 s"
"""

RELAY = """
clients = ["10.45.1.0/24"]
interception = "bpf"
pin = false
[policy]
holdout = 500
holdout_slot = "{slot}"
[log]
addresses = "plain"
[flow_log]
path = "{log}"
{also}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transfers", type=int, default=500)
    parser.add_argument("--server-control", default="cubic,ms_bbr")
    parser.add_argument("--loss", default="1")
    parser.add_argument("--at-once", type=int, default=4, help="of how many transfers, by the same client")
    parser.add_argument("--slot", default="0 s", help="the two arms take turns of this time (policy.holdout_slot)")
    parser.add_argument("--also", default="", help="more of the relay's settings, TOML")
    parser.add_argument("--record", action="store_true", help="keep it in bench/runs/")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(Path(options.inside), options.transfers, options.at_once)
    if os.geteuid() != 0:
        sys.exit("accounts: BPF steers, which takes root")
    apart, said, raw = 0, [], []
    for control in options.server_control.split(","):
        with tempfile.TemporaryDirectory() as folder:
            times, lines = run(Path(folder), control, options)
        heading = f"server with {control}, {options.loss} % lost on the radio: {lines}"
        table, found = compare(times)
        said += [heading, *table, ""]
        print("\n".join(said[-len(table) - 2 :]), flush=True)
        apart += found
        raw += [{"server_control": control, **transfer} for transfer in times]
    if options.record:
        keep("accounts", said, raw)
    return 1 if apart else 0


def run(folder, control, options):
    for name, size in SIZES.items():
        (folder / name.replace(" ", "")).write_bytes(random.Random(size).randbytes(size))
    os.chmod(folder, 0o755)
    (folder / "path.toml").write_text(SCENARIO.format(loss=options.loss, control=control))
    (folder / "relay.toml").write_text(RELAY.format(log=folder / "flows.jsonl", slot=options.slot, also=options.also))
    serve = nginx(folder, f"server {{ listen {PORT}; root {folder}; }}")
    command = [MIDSPAN, "lab", "shell", folder / "path.toml", "--variant", "none", "--quiet"]
    command += ["--server", serve, "--", sys.executable, __file__]
    command += ["--inside", folder, "--transfers", str(options.transfers), "--at-once", str(options.at_once)]
    shell = subprocess.Popen(command)
    try:
        wait(lambda: (folder / "inside").exists() or shell.poll() is not None)
        start_relay(folder)
        (folder / "relay").touch()
        status = shell.wait()
        if status != 0:
            sys.exit((folder / "relay.log").read_text() + "accounts: the run has failed")
    finally:
        shell.terminate()
        shell.wait()
    return report(folder)


def start_relay(folder):
    """On the box between. Ends with the shell."""
    # The lab's routes name a congestion control for their host, which accepted sockets have whatever their listener's is.
    run = f"ip route replace 10.45.1.0/24 dev access && exec {MIDSPAN} relay --config {folder}/relay.toml"
    enter = [MIDSPAN, "lab", "enter", "mec", "--", "sh", "-c", run]
    log = folder / "relay.log"
    with log.open("w") as output:
        relay = subprocess.Popen(enter, stdout=output, stderr=subprocess.STDOUT)
    wait(lambda: "ready" in log.read_text() or relay.poll() is not None)


def inside(folder, transfers, at_once):
    """On the UE."""
    (folder / "inside").touch()
    wait((folder / "relay").exists)
    draw = random.Random(1)
    kinds = [name for name, share in SHARES.items() for _ in range(share)]
    wanted = [draw.choice(kinds) for _ in range(transfers)]
    done, lock = [], threading.Lock()

    def fetch():
        while True:
            with lock:
                if not wanted:
                    return
                kind = wanted.pop()
            url = f"http://{os.environ['MIDSPAN_SERVER']}:{PORT}/{kind.replace(' ', '')}"
            form = "%{local_port} %{time_total} %{size_download} %{http_code}"
            ran = subprocess.run(
                ["curl", "-s", "-o", "/dev/null", "-w", form, url], capture_output=True, text=True
            )
            port, seconds, size, status = ran.stdout.split()
            ok = ran.returncode == 0 and status == "200" and int(size) == SIZES[kind]
            with lock:
                done.append({"kind": kind, "port": int(port), "seconds": float(seconds), "ok": ok})

    workers = [threading.Thread(target=fetch) for _ in range(at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # The last ones' acknowledgements, and the log's queue.
    time.sleep(3)
    (folder / "clients.json").write_text(json.dumps(done))
    return 0


def wait(is_so):
    until = time.monotonic() + PATIENCE
    while not is_so() and time.monotonic() < until:
        time.sleep(0.05)


def report(folder):
    """Each transfer by both clocks, and a line on all of them."""
    clients = json.loads((folder / "clients.json").read_text())
    lines = [json.loads(line) for line in (folder / "flows.jsonl").read_text().splitlines()]
    paths = {}
    for line in lines:
        if line["kind"] == "path" and line["verdict"] in ("split", "pass_holdout"):
            paths.setdefault(int(line["client"].rsplit(":", 1)[1]), []).append(line)
    ports = [client["port"] for client in clients]
    times = []
    for client in clients:
        found = paths.get(client["port"], [])
        # A port that was used twice is nobody's.
        alone = len(found) == 1 and ports.count(client["port"]) == 1
        acknowledged = found[0]["down"]["last_acknowledged_us"] if alone else None
        if acknowledged is not None:
            arm = "split" if found[0]["verdict"] == "split" else "held out"
            seconds = {"client_s": client["seconds"], "account_s": acknowledged / 1e6}
            times.append({"size": client["kind"], "arm": arm, **seconds})
    failed = sum(not client["ok"] for client in clients)
    if failed:
        sys.exit(f"accounts: {failed} of {len(clients)} transfers have failed")
    if len(times) < 0.95 * len(set(ports)):
        sys.exit(f"accounts: of {len(set(ports))} transfers only {len(times)} have an account")
    return times, f"{len(times)} transfers, {len(clients) - len(times)} left out whose port was used twice"


def compare(times):
    """The table, and in how many sizes the gains are apart."""
    table = ["size     transfers         split: clients  account   held out: clients  account   gain: clients  account"]
    apart = 0
    for kind in SIZES:
        arms = [[one for one in times if (one["size"], one["arm"]) == (kind, arm)] for arm in ("split", "held out")]
        if min(map(len, arms)) < 5:
            table.append(f"{kind:8} too few")
            apart += 1
            continue
        means = [mean(arm, clock) for arm in arms for clock in ("client_s", "account_s")]
        gains = [means[2] / means[0], means[3] / means[1]]
        apart += abs(math.log(gains[1] / gains[0])) > APART
        table.append(
            f"{kind:8} {len(arms[0]):4} and {len(arms[1]):4}  {means[0]:14.3f} s {means[1]:6.3f} s"
            f"  {means[2]:15.3f} s {means[3]:6.3f} s  {gains[0]:11.2f} x {gains[1]:6.2f} x"
        )
    return table, apart


def mean(pairs, clock):
    """Geometric: of ratios, which gains are."""
    return math.exp(sum(math.log(pair[clock]) for pair in pairs) / len(pairs))


if __name__ == "__main__":
    sys.exit(main())
