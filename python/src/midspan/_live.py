"""Live runs: they are the program's, which has privileges to ask for and a relay to start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .results import Results
from .scenario import Scenario


def run_live(
    scenario: Scenario,
    variants: list[str],
    only: list[tuple[str, str]],
    out: str | os.PathLike[str] | None,
    fresh: bool,
    captures: str | None,
    told: bool,
    program: str | os.PathLike[str] | None,
) -> Results:
    """See :func:`midspan.run`. Without ``out`` the folder is gone afterwards."""
    midspan = _program(program)
    with tempfile.TemporaryDirectory(prefix="midspan-") as folder:
        file = Path(folder) / "scenario.toml"
        file.write_text(scenario.to_toml(), encoding="utf-8")
        base = Path(folder) / "results" if out is None else Path(out)
        command = [midspan, "lab", "run", str(file), "--backend", "live", "--out", str(base)]
        command += ["--traces", str(scenario._directory)]
        command += ["--short"] if scenario._is_short else []
        command += ["--fresh"] if fresh else []
        command += ["--captures", captures] if captures else []
        command += ["--variants", ",".join(variants)] if variants else []
        for axis, label in only:
            command += ["--only", f"{axis}={label}"]
        pipe = subprocess.PIPE
        # Whoever is to be told of progress is told by the program.
        done = subprocess.run(
            command, stdout=pipe, stderr=None if told else pipe, text=True, check=False
        )
        # A sweep that gave no number ends in 1, as one that was refused does: that has no report.
        report = re.search(r"^Report: (.+)$", done.stdout, re.MULTILINE)
        if report is None:
            why = (done.stderr or "").strip().splitlines()
            raise RuntimeError(why[-1] if why else f"{midspan} ended with {done.returncode}")
        directory = Path(report[1]).parent
        results = Results.read(directory)
        results.scenario = scenario
        results.directory = None if out is None else directory
        return results


def _program(program: str | os.PathLike[str] | None) -> str:
    named = program or os.environ.get("MIDSPAN")
    found = shutil.which(named or "midspan")
    if found is None:
        where = f"`{named}` is none" if named else "there is none in PATH"
        raise FileNotFoundError(
            f"live runs take the program `midspan`, and {where}: "
            "give `program=`, or set MIDSPAN, to the file that `cargo build --release` made"
        )
    return found
