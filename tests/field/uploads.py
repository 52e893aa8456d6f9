#!/usr/bin/env python3
"""Uploads over a radio link: the first of a network, the next, and a neighbour's first.

Uploads over cells of scenarios/radio/never-slower-live.toml, where packets come late, or of in-order-live.toml, where all
behind them waits; one after the other: two by a client, then one by another client of the same network (/24), of whom the
relay knows nothing. Each round has a new relay, and the same without a relay beside it.

By iperf3 as it is: what the server has got in ten seconds. Of a number of bytes (`-n`) it tells what the server had when the
client had written them, which is not all, and less of it through a relay. Or by curl to nginx, 25 MiB or another size by the
user's clock: from when the connection is asked for until the answer that the server gives when it has all. With --down the
same the other way: what the client has got in ten seconds, or of a file.

    tests/field/uploads.py [--tool iperf3|curl [--size KIB]] [--down] [--over late|in-order ...] [--rounds N]
        [--record]

Root; nothing outside the namespaces of `midspan lab shell` is changed. Runs in which the emulator fell behind do not count,
whatever they have shown, and are made again, twice at most.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recording import keep
from web import nginx

ROOT = Path(__file__).resolve().parents[2]
MIDSPAN = ROOT / "target/release/midspan"
RELAYS = ["1 ms", "5 ms"]
LATE = ["none", "0.5 % by 10 ms", "1 % by 10 ms", "0.5 % by 20 ms"]
CONTROLS = ["cubic", "reno", "bbr", "ms_bbr3"]
# What the radio link does: the scenario with it, the axis that varies beside the relay's place, and the cells.
LINKS = {
    "late": (
        "never-slower-live",
        "late",
        [(relay, late) for relay in RELAYS for late in LATE if (relay, late) != ("5 ms", "none")],
    ),
    "in-order": ("in-order-live", "control", [(relay, control) for relay in RELAYS for control in CONTROLS]),
}
# Of curl's, KiB.
SIZE = 25 * 1024
PORT = 8080
# Whose uploads there are, in order.
UPLOADS = ["first", "its second", "neighbour's"]
LEAST = 3
TRIES = 3
PATIENCE = 180
UNTRUSTED = "not trusted"

# Asks another for the answer once it has all: to answer by itself it need not read.
HTTP = """
  client_max_body_size 0;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen {port};
    location / {{ proxy_pass http://127.0.0.1:{answering}; }}
    location = /file {{ root {folder}; }}
  }}
  server {{ listen 127.0.0.1:{answering}; location / {{ return 200; }} }}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", choices=TOOLS, default="iperf3")
    parser.add_argument("--over", choices=LINKS, nargs="+", default=["late"], help="what the radio link does")
    parser.add_argument("--size", type=int, default=SIZE, metavar="KIB", help="what curl sends, or gets")
    parser.add_argument("--down", action="store_true", help="downloads")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--record", action="store_true", help="keep it in bench/runs/")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    if options.size != SIZE and options.tool != "curl":
        parser.error("--size is for curl: iperf3 sends for ten seconds")
    if os.geteuid() != 0:
        sys.exit("uploads: BPF steers, which takes root")
    raw, runs, untrusted, failed = {over: [] for over in options.over}, 0, 0, []
    for number in range(options.rounds):
        for over in options.over:
            scenario, axis, cells = LINKS[over]
            for relay, value in cells:
                for variant in ("none", "midspan"):
                    name = f"{over}: {variant}, relay at {relay}, {axis} {value}, round {number + 1}"
                    point = {"relay": relay, axis: value}
                    for _ in range(TRIES):
                        goodput, fault = run(options, variant, scenario, point, number + 1)
                        print(f"{name}: {fault or goodput}", flush=True)
                        runs += 1
                        untrusted += fault == UNTRUSTED
                        if fault != UNTRUSTED:
                            break
                    if not fault:
                        raw[over].append({"over": over, "variant": variant, **point, "goodput_mbps": goodput})
                    elif fault != UNTRUSTED:
                        failed.append(f"{name}: {fault}")
    what = f"{options.size} KiB by curl" if options.tool == "curl" else "iperf3"
    direction = "downloads" if options.down else "uploads"
    said = []
    for over in options.over:
        said += [f"{direction} of {what}, {over}; Mbit/s, medians; of what there is without a relay"]
        said += table(raw[over], *LINKS[over][1:])
    said.append(f"{untrusted} of {runs} runs were not trusted: the emulator fell behind.")
    said += [f"failed: {one}" for one in failed]
    print("\n" + "\n".join(said))
    if options.record:
        links = "-down" * options.down + ("" if options.over == ["late"] else "-" + "-".join(options.over))
        size = "" if options.size == SIZE else f"-{options.size}-kib"
        keep("uploads", said, sum(raw.values(), []), f"{links}-{options.tool}{size}")
    return 1 if failed else 0


def run(options, variant, scenario, point, seed):
    """Goodput of transfers in their order, Mbit/s, and what was wrong, if anything was."""
    command = [MIDSPAN, "lab", "shell", ROOT / f"scenarios/radio/{scenario}.toml", "--variant", variant]
    command += ["--seed", str(seed), "--quiet"]
    for axis, value in point.items():
        command += ["--set", f"{axis}={value}"]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        http = HTTP.format(folder=folder, port=PORT, answering=PORT + 1)
        served = Path(folder, "file")
        served.touch()
        os.truncate(served, options.size * 1024)
        serve = nginx(folder, http) if options.tool == "curl" else "iperf3 -s"
        command += ["--server", serve, "--", sys.executable, __file__, "--inside", "--tool", options.tool]
        command += ["--size", str(options.size)] + ["--down"] * options.down
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if ran.returncode != 0:
        return None, " ".join((ran.stdout + ran.stderr).split())
    return json.loads(ran.stdout), UNTRUSTED if "do not trust" in ran.stderr else None


def inside(options):
    """On the UE, whose second address is the neighbour."""
    server = os.environ["MIDSPAN_SERVER"]
    route = subprocess.check_output(["ip", "-4", "-o", "route", "get", server], text=True)
    link, own = re.search(r" dev (\S+) .*src (\S+)", route).groups()
    neighbour = own.rsplit(".", 1)[0] + ".77"
    subprocess.run(["ip", "addr", "add", f"{neighbour}/32", "dev", link], check=True)
    goodput = []
    for client in (own, own, neighbour):
        # iperf3's server takes one test at a time, and a while to be ready for the next.
        time.sleep(0.5)
        goodput.append(round(TOOLS[options.tool](server, client, options) / 1e6, 2))
    print(json.dumps(goodput))
    return 0


def by_iperf3(server, client, options):
    command = ["iperf3", "-c", server, "-B", client, "-J"] + ["--reverse"] * options.down
    told = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    if "error" in told:
        sys.exit(f"iperf3: {told['error']}")
    return told["end"]["sum_received"]["bits_per_second"]


def by_curl(server, client, options):
    size = options.size * 1024
    with tempfile.NamedTemporaryFile() as file:
        command = ["curl", "--silent", "--show-error", "--fail", "--interface", client, "--write-out", "%{stderr}%{time_total}"]
        if options.down:
            command += ["--output", file.name, f"http://{server}:{PORT}/file"]
        else:
            file.truncate(size)
            command += ["--upload-file", file.name, f"http://{server}:{PORT}/"]
        told = subprocess.run(command, capture_output=True, text=True)
        if told.returncode != 0 or os.path.getsize(file.name) != size:
            sys.exit(told.stderr)
    return size * 8 / float(told.stderr)


TOOLS = {"iperf3": by_iperf3, "curl": by_curl}


def table(raw, axis, cells):
    said = [
        f"{'relay':6} {axis:15} {'no relay':>9}  " + "  ".join(f"{name:>15}" for name in UPLOADS),
    ]
    for relay, value in cells:
        runs = {
            variant: [one["goodput_mbps"] for one in raw if (one["variant"], one["relay"], one[axis]) == (variant, relay, value)]
            for variant in ("none", "midspan")
        }
        if min(map(len, runs.values())) < LEAST:
            said.append(f"{relay:6} {value:15} too few runs to be trusted")
            continue
        # Without a relay they are all alike.
        none = statistics.median(goodput for run in runs["none"] for goodput in run)
        split = [statistics.median(which) for which in zip(*runs["midspan"])]
        said.append(
            f"{relay:6} {value:15} {none:9.1f}  " + "  ".join(f"{goodput:6.1f}  {goodput / none:5.2f} x" for goodput in split)
        )
    return said


if __name__ == "__main__":
    sys.exit(main())
