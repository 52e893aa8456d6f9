"""Running scenarios on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ._live import run_live
from ._midspan import Folder, Records, simulate
from .results import Results
from .scenario import Scenario


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    #: Runs that are done, those of an earlier session included.
    done: int
    #: All of them.
    total: int
    #: The record of the last one.
    record: dict[str, Any]


def run(
    scenario: Scenario | Mapping[str, Any] | str | os.PathLike[str],
    backend: Literal["sim", "live"] = "sim",
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
    captures: str | os.PathLike[str] | None = None,
    qlog: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[Progress], None] = False,
    program: str | os.PathLike[str] | None = None,
) -> Results:
    """Runs a scenario, its whole sweep, and answers its results.

    ``backend`` is ``"sim"``, virtual time on all cores of this machine while other Python threads
    go on, or ``"live"``, real kernel TCP by the program `midspan`: ``program``, or the one that the
    environment's ``MIDSPAN`` names, or that is found in ``PATH``.

    ``repetitions`` and ``seed`` are in place of the scenario's; ``short`` runs its short version;
    ``variants`` and ``only`` (axis -> label, or labels) a part. ``elements`` and ``controls`` make
    the path elements and congestion controls that the scenario has from outside
    (:class:`~midspan.Element`, :class:`~midspan.CongestionControl`).

    With ``out`` every record is on disk before the next one is made, in a folder below it, as by
    `midspan lab run --out`: a sweep that was cut goes on where it stopped, unless ``fresh``.

    Below ``captures`` and ``qlog`` each run has a folder in that of its cell: the headers of its
    packets, a pcapng file for each end of both links, and, simulated, what each of its senders
    does, as qlog.

    ``progress`` is ``True`` for a line on standard error, or is called after each run.
    """
    scenario = prepared(scenario, repetitions, seed, short)
    chosen = [str(variant) for variant in variants]
    labels = axis_labels(only)
    tell = teller(progress)
    if backend == "live":
        if elements or controls:
            raise ValueError("elements and controls from outside are only simulated")
        if qlog is not None:
            raise ValueError("qlog: what the kernel's TCP does is not told")
        told = tell is not None
        return run_live(scenario, chosen, labels, out, fresh, _folder(captures), told, program)
    if backend != "sim":
        raise ValueError(f"no backend `{backend}`: it is sim or live")
    sweep = Sweep(scenario, chosen, labels, out, fresh, tell, "midspan.run")
    if sweep.runs:
        makers = dict(elements or {}), dict(controls or {})
        kept = _folder(captures), _folder(qlog)
        simulate(scenario._parsed, sweep.runs, sweep.keep, scenario._traces(), *makers, *kept)
    return sweep.results()


def _folder(path: str | os.PathLike[str] | None) -> str | None:
    """A folder that is there."""
    if path is None:
        return None
    Path(path).mkdir(parents=True, exist_ok=True)
    return os.fspath(path)


def prepared(
    scenario: Scenario | Mapping[str, Any] | str | os.PathLike[str],
    repetitions: int | None,
    seed: int | None,
    short: bool,
) -> Scenario:
    """The scenario that is to be run."""
    if isinstance(scenario, Mapping):
        scenario = Scenario(scenario)
    elif not isinstance(scenario, Scenario):
        scenario = Scenario.from_toml(scenario)
    if short:
        scenario = scenario.short
    changes = {"repetitions": repetitions, "seed": seed}
    changes = {key: value for key, value in changes.items() if value is not None}
    if repetitions is not None and scenario._is_short:
        changes["short.repetitions"] = changes.pop("repetitions")
    return scenario.changed(changes) if changes else scenario


def axis_labels(only: Mapping[str, str | Sequence[str]] | None) -> list[tuple[str, str]]:
    """Each label of each axis by itself."""
    pairs = []
    for axis, labels in (only or {}).items():
        for label in [labels] if isinstance(labels, str) else labels:
            pairs.append((axis, str(label)))
    return pairs


def teller(
    progress: bool | Callable[[Progress], None],
) -> Callable[[Progress], None] | None:
    """Who is to be told of each run."""
    if progress is True:
        return _line
    return progress or None


def _line(progress: Progress) -> None:
    record = progress.record
    cell = "".join(f"{axis} {label}, " for axis, label in record["cell"].items())
    place = f"{progress.done}/{progress.total}"
    outcome = record["outcome"] + (f": {record['reason']}" if "reason" in record else "")
    what = f"{cell}{record['variant']}, repetition {record['repetition'] + 1}"
    print(f"{place} {what}: {outcome}", file=sys.stderr, flush=True)


class Sweep:
    """What is to be simulated of a scenario, and what has come of it."""

    def __init__(
        self,
        scenario: Scenario,
        variants: list[str],
        only: list[tuple[str, str]],
        out: str | os.PathLike[str] | None,
        fresh: bool,
        tell: Callable[[Progress], None] | None,
        name: str,
    ) -> None:
        self.scenario, self.tell = scenario, tell
        parsed = scenario._parsed
        planned = parsed.plan(variants, only, Records())
        if not planned:
            raise ValueError("the selection leaves nothing to run")
        self.total = len(planned)
        self.folder: Folder | None = None
        self.records = Records()
        self.runs = planned
        if out is not None:
            command = f"{name}({scenario.name!r})"
            base = Path(out)
            self.folder = Folder.open(base, parsed, variants, only, fresh, command)
            self.records = self.folder.records()
            self.runs = parsed.plan(variants, only, self.records)

    def keep(self, record: Records) -> None:
        """Takes the record of the next run."""
        if self.folder is not None:
            self.folder.add(record)
        self.records.extend(record)
        if self.tell is not None:
            self.tell(Progress(len(self.records), self.total, json.loads(record.jsonl())))

    def results(self) -> Results:
        """All records; the folder, if there is one, has its report too."""
        directory = None
        if self.folder is not None:
            directory = Path(self.folder.directory)
            parsed = self.scenario._parsed
            self.folder.write("summary.txt", self.records.summary(parsed))
            self.folder.write("report.html", self.records.html(parsed))
        return Results(self.scenario, self.records, directory)
