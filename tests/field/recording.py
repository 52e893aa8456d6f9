"""Keeps what was measured, as benchmarks do (bench/runs/README.md)."""

import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def keep(name, said, raw, suffix=""):
    """Lines of a summary, and records, as today's run of `./run bench NAME` with this process's arguments, in a folder of
    that name and `suffix`."""
    folder = ROOT / "bench/runs" / time.strftime(f"%Y-%m-%d-{name}{suffix}", time.gmtime())
    folder.mkdir(exist_ok=True)
    (folder / "command.txt").write_text(" ".join(["./run bench", name, *sys.argv[1:]]) + "\n")
    (folder / "summary.txt").write_text("\n".join(said) + "\n")
    (folder / "raw.jsonl").write_text("".join(json.dumps(one) + "\n" for one in raw))
    model = next(line for line in open("/proc/cpuinfo") if line.startswith("model name"))
    memory = next(line for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    kernel = os.uname()
    (folder / "machine.txt").write_text(
        f"processor: {os.cpu_count()} x {model.split(':')[1].strip()}\n"
        f"memory: {memory.split(':')[1].strip()}\n"
        f"kernel: {kernel.release} {kernel.version}\n"
        f"load at the end (1, 5, 15 min): {', '.join(f'{load:.2f}' for load in os.getloadavg())}\n"
    )
    print(f"recorded in {folder.relative_to(ROOT)}")
