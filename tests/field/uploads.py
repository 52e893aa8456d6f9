#!/usr/bin/env python3
"""Uploads over a radio link: the first of a network, the next, and a neighbour's first.

Uploads over cells of scenarios/radio/never-slower-live.toml, where packets come late, or of in-order-live.toml, where all
behind them waits; one after the other: two by a client, then one by another client of the same network (/24), of whom the
relay knows nothing. Each round has a new relay, and the same without a relay beside it.

By iperf3 as it is: what the server has got in ten seconds. Of a number of bytes (`-n`) it tells what the server had when the
client had written them, which is not all, and less of it through a relay. Or by curl to nginx, 25 MB by the user's clock: from
when the connection is asked for until the answer that the server gives when it has all.

    tests/field/uploads.py [--tool iperf3|curl] [--over late|in-order] [--rounds N] [--record]

Root; nothing outside the namespaces of `midspan lab shell` is changed. Rounds in which the emulator fell behind do not
count.
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
# What the radio link does: the scenario with it, the axis that varies beside the relay's place, and the cells.
LINKS = {
    "late": (
        "never-slower-live",
        "late",
        [(relay, late) for relay in RELAYS for late in LATE if (relay, late) != ("5 ms", "none")],
    ),
    "in-order": (
        "in-order-live",
        "control",
        [(relay, control) for relay in RELAYS for control in ("cubic", "reno", "bbr", "ms_bbr3")],
    ),
}
# Of curl's.
SIZE = 25 * 1024 * 1024
PORT = 8080
# Whose uploads there are, in order.
UPLOADS = ["first", "its second", "neighbour's"]
LEAST = 3
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
  server {{ listen {port}; location / {{ proxy_pass http://127.0.0.1:{answering}; }} }}
  server {{ listen 127.0.0.1:{answering}; location / {{ return 200; }} }}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", choices=TOOLS, default="iperf3")
    parser.add_argument("--over", choices=LINKS, default="late", help="what the radio link does")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--record", action="store_true", help="keep it in bench/runs/")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options.tool)
    if os.geteuid() != 0:
        sys.exit("uploads: BPF steers, which takes root")
    scenario, axis, cells = LINKS[options.over]
    raw, untrusted, failed = [], 0, []
    for number in range(options.rounds):
        for relay, value in cells:
            for variant in ("none", "midspan"):
                name = f"{variant}, relay at {relay}, {axis} {value}, round {number + 1}"
                point = {"relay": relay, axis: value}
                goodput, fault = run(options.tool, variant, scenario, point, number + 1)
                print(f"{name}: {fault or goodput}", flush=True)
                if not fault:
                    raw.append({"variant": variant, **point, "goodput_mbps": goodput})
                elif fault == UNTRUSTED:
                    untrusted += 1
                else:
                    failed.append(f"{name}: {fault}")
    said = table(options.tool, raw, axis, cells)
    said.append(f"{untrusted} of {options.rounds * len(cells) * 2} runs were not trusted: the emulator fell behind.")
    said += [f"failed: {one}" for one in failed]
    print("\n" + "\n".join(said))
    if options.record:
        keep("uploads", said, raw, f"-{options.tool}" if options.over == "late" else f"-{options.over}-{options.tool}")
    return 1 if failed else 0


def run(tool, variant, scenario, point, seed):
    """Goodput of uploads in their order, Mbit/s, and what was wrong, if anything was."""
    command = [MIDSPAN, "lab", "shell", ROOT / f"scenarios/radio/{scenario}.toml", "--variant", variant]
    command += ["--seed", str(seed), "--quiet"]
    for axis, value in point.items():
        command += ["--set", f"{axis}={value}"]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        http = HTTP.format(folder=folder, port=PORT, answering=PORT + 1)
        serve = nginx(folder, http) if tool == "curl" else "iperf3 -s"
        command += ["--server", serve, "--", sys.executable, __file__, "--inside", "--tool", tool]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if ran.returncode != 0:
        return None, " ".join((ran.stdout + ran.stderr).split())
    return json.loads(ran.stdout), UNTRUSTED if "do not trust" in ran.stderr else None


def inside(tool):
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
        goodput.append(round(TOOLS[tool](server, client) / 1e6, 2))
    print(json.dumps(goodput))
    return 0


def by_iperf3(server, client):
    command = ["iperf3", "-c", server, "-B", client, "-J"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    if "error" in told:
        sys.exit(f"iperf3: {told['error']}")
    return told["end"]["sum_received"]["bits_per_second"]


def by_curl(server, client):
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(SIZE)
        command = ["curl", "--silent", "--show-error", "--fail", "--interface", client, "--upload-file", file.name]
        command += ["--write-out", "%{time_total}", f"http://{server}:{PORT}/"]
        told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode != 0:
        sys.exit(told.stderr)
    return SIZE * 8 / float(told.stdout)


TOOLS = {"iperf3": by_iperf3, "curl": by_curl}


def table(tool, raw, axis, cells):
    said = [
        f"uploads by {tool}, Mbit/s, medians; of what there is without a relay",
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
