"""Sweeps beyond one machine, on Ray: one task for each cell and repetition.

The records are byte for byte those of :func:`midspan.run`, whoever makes them. Workers need the
package in the same version; traces, elements and congestion controls are brought to them.

`midspan lab run --ray ADDRESS` calls it as a program, ``python3 -m midspan.ray``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from ._midspan import Records, simulate
from ._run import Progress, Sweep, axis_labels, prepared, teller
from .results import Results
from .scenario import Scenario

if TYPE_CHECKING:
    from ._midspan import _Run

#: What Ray does about a worker or a node that dies, and then what this module does about tasks
#: that Ray gives up: each is begun so many times more.
RETRIES = 5


@dataclass(frozen=True)
class _Job:
    """What every task of a sweep needs."""

    scenario: Scenario
    traces: dict[str, bytes]
    elements: dict[str, Callable[..., Any]]
    controls: dict[str, Callable[..., Any]]


def run(
    scenario: Scenario | Mapping[str, Any] | str | os.PathLike[str],
    address: str | None = None,
    *,
    repetitions: int | None = None,
    seed: int | None = None,
    short: bool = False,
    variants: Sequence[str] = (),
    only: Mapping[str, str | Sequence[str]] | None = None,
    elements: Mapping[str, Callable[..., Any]] | None = None,
    controls: Mapping[str, Callable[..., Any]] | None = None,
    out: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    progress: bool | Callable[[Progress], None] = False,
) -> Results:
    """Simulates a scenario on the Ray cluster at ``address``: as :func:`midspan.run`, and with its
    keywords.

    Without an address it is the cluster that this process is connected to, or that the environment
    names (``RAY_ADDRESS``), or else one of this machine's own, which ends with the run. That is
    what the address ``"local"`` means, too.

    Tasks of workers and nodes that die are made again elsewhere. What a task raises, as an element
    or a control may, ends the sweep and is raised here; with ``out`` the same call goes on where it
    stopped.
    """
    scenario = prepared(scenario, repetitions, seed, short)
    labels = axis_labels(only)
    chosen = [str(variant) for variant in variants]
    sweep = Sweep(scenario, chosen, labels, out, fresh, teller(progress), "midspan.ray.run")
    if not sweep.runs:
        return sweep.results()
    job = _Job(scenario, scenario._traces(), dict(elements or {}), dict(controls or {}))
    mine = not ray.is_initialized()
    if mine:
        _connect(address)
    try:
        _make(sweep, job)
    finally:
        if mine:
            ray.shutdown()
    return sweep.results()


def _connect(address: str | None) -> None:
    address = address or os.environ.get("RAY_ADDRESS")
    if address not in (None, "local"):
        ray.init(address=address, log_to_driver=False)
        return
    # One of our own talks to nobody.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )


def _make(sweep: Sweep, job: _Job) -> None:
    """Makes the runs; keeps their records in the order of the runs, whatever order they end in."""
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_simulate)
    shared = ray.put(job)
    # A cell's variants stand one behind the other in the plan.
    parts = [list(runs) for _, runs in groupby(sweep.runs, key=lambda run: (run[0], run[2]))]
    attempts = [0] * len(parts)
    under_way: dict[Any, int] = {}
    early: dict[int, list[str]] = {}
    begun = kept = 0
    try:
        while kept < len(parts):
            # No more than keeps the workers busy: a cut sweep leaves little that was in vain.
            most = max(16, 4 * _workers())
            while begun < len(parts) and len(under_way) < most and begun - kept < 64 * most:
                under_way[task.remote(shared, parts[begun])] = begun
                begun += 1
            ready, _ = ray.wait(list(under_way), num_returns=1)
            for reference in ready:
                number = under_way.pop(reference)
                try:
                    early[number] = ray.get(reference)
                except _LOST:
                    attempts[number] += 1
                    if attempts[number] > RETRIES:
                        raise
                    under_way[task.remote(shared, parts[number])] = number
            while kept in early:
                for line in early.pop(kept):
                    sweep.keep(Records.from_jsonl(line))
                kept += 1
    finally:
        for reference in under_way:
            ray.cancel(reference)


def _workers() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 1))


#: A task whose worker, node or result is gone.
_LOST = (
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.LocalRayletDiedError,
)


def _simulate(job: _Job, runs: list[_Run]) -> list[str]:
    """On a worker: the records of some runs, as their lines."""
    lines: list[str] = []

    def keep(record: Records) -> None:
        lines.append(record.jsonl())

    simulate(job.scenario._parsed, runs, keep, job.traces, job.elements, job.controls)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the scenario of a file and prints the results' folder; the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m midspan.ray", description=main.__doc__)
    parser.add_argument("address", help="the cluster's, or local for one of this machine's own")
    parser.add_argument("file", help="scenario file")
    parser.add_argument("--out", required=True, metavar="DIR", help="results make a folder in it")
    parser.add_argument("--traces", metavar="DIR", help="recorded traces, if not beside the file")
    parser.add_argument("--short", action="store_true", help="the file's short version")
    parser.add_argument("--fresh", action="store_true", help="begin anew")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME")
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=LABEL")
    given = parser.parse_args(arguments)
    only: dict[str, list[str]] = {}
    for pair in given.only:
        axis, _, label = pair.partition("=")
        only.setdefault(axis, []).append(label)
    try:
        scenario = Scenario.from_toml(Path(given.file), directory=given.traces)
        results = run(
            scenario,
            given.address,
            short=given.short,
            variants=given.variant,
            only=only,
            out=given.out,
            fresh=given.fresh,
            progress=True,
        )
    except (OSError, RuntimeError, ValueError) as error:
        print(f"midspan: Ray: {error}", file=sys.stderr)
        return 1
    print(results.directory)
    return 0


if __name__ == "__main__":
    # Of the module by its name, so that workers find what they are sent.
    from midspan.ray import main as of_module

    sys.exit(of_module())
