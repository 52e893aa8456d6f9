"""Live runs: they are the program's, which has privileges to ask for and a relay to start."""

from __future__ import annotations

import os
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
    told: bool,
    program: str | os.PathLike[str] | None,
) -> Results:
    """See :func:`midspan.run`. Without ``out`` the folder is gone afterwards."""
    midspan = _program(program)
    with tempfile.TemporaryDirectory(prefix="midspan-") as folder:
        file = Path(folder) / "scenario.toml"
        file.write_text(scenario.to_toml(), encoding="utf-8")
        base = Path(folder) / "results" if out is None else Path(out)
        before = set(base.iterdir()) if base.is_dir() else set()
        command = [midspan, "lab", "run", str(file), "--backend", "live", "--out", str(base)]
        command += ["--traces", str(scenario._directory)]
        command += ["--short"] if scenario._is_short else []
        command += ["--fresh"] if fresh else []
        command += ["--variants", ",".join(variants)] if variants else []
        for axis, label in only:
            command += ["--only", f"{axis}={label}"]
        done = subprocess.run(command, capture_output=not told, text=True, check=False)
        # A run without a number ends in 1, as does what was refused before any run.
        folders = sorted(set(base.iterdir()) - before) if base.is_dir() else []
        newest = folders or (sorted(before) if not fresh else [])
        if done.returncode not in (0, 1) or not newest:
            why = (done.stderr or "").strip().splitlines()
            raise RuntimeError(why[-1] if why else f"{midspan} ended with {done.returncode}")
        results = Results.read(newest[-1])
        results.scenario = scenario
        results.directory = None if out is None else newest[-1]
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
