"""What came of runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._midspan import Folder, Records, Table
from .scenario import Scenario

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Results:
    """The records of a scenario's runs, in the order in which `midspan lab run` makes them.

    Tables are ``runs``, one row for each run, and ``flows``, ``transfers``, ``videos``, ``legs``
    and ``links``, of which a run has several. Times, rates and sizes have their unit in the name
    and in the column's metadata (``unit``).
    """

    def __init__(self, scenario: Scenario, records: Records, directory: Path | None = None) -> None:
        #: What was run.
        self.scenario = scenario
        #: The results folder, if there is one.
        self.directory = directory
        self._records = records

    @classmethod
    def read(cls, directory: str | os.PathLike[str]) -> Results:
        """A results folder, of `midspan lab run` or of :func:`midspan.run`."""
        records, text = Folder.read(Path(directory))
        scenario = Scenario.from_toml(text, directory=directory)
        # Of the short version, as the records say.
        digests = {json.loads(line)["digest"] for line in records.jsonl().splitlines()}
        if scenario._parsed.has_short and scenario.digest not in digests:
            scenario = scenario.short
        return cls(scenario, records, Path(directory))

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<Results of {self.scenario.name}: {len(self)} runs>"

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.summary())}</pre>"

    def records(self) -> list[dict[str, Any]]:
        """The records as docs/reference/results.md describes them."""
        return [json.loads(line) for line in self.to_jsonl().splitlines()]

    def to_jsonl(self) -> str:
        """One JSON object a line: byte for byte what `midspan lab run` writes."""
        return self._records.jsonl()

    @property
    def digest(self) -> str:
        """SHA-256 of what came out: the same for the same scenario, whoever simulated it."""
        return self._records.digest()

    def summary(self) -> str:
        """The table that `midspan lab report` prints."""
        return self._records.summary(self.scenario._parsed)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page that `midspan lab report` makes, and answers where."""
        path = Path(path)
        path.write_text(self._records.html(self.scenario._parsed), encoding="utf-8")
        return path

    def table(self, name: str = "runs") -> Table:
        """A table, for whatever reads Arrow's C stream interface (``__arrow_c_stream__``)."""
        return self._records.table(name)

    def to_polars(self, name: str = "runs") -> polars.DataFrame:
        """A table as a Polars frame."""
        import polars

        return polars.DataFrame(self.table(name))

    def to_arrow(self, name: str = "runs") -> pyarrow.Table:
        """A table of pyarrow's, with the units in the schema's metadata."""
        import pyarrow

        return pyarrow.table(self.table(name))

    def to_pandas(self, name: str = "runs") -> pandas.DataFrame:
        """A table as a pandas frame; pyarrow makes it."""
        return self.to_arrow(name).to_pandas()

    def plot(self, x: str | None = None, y: str = "goodput_bps", **options: Any) -> Any:
        """See :func:`midspan.plot.lines`."""
        from .plot import lines

        return lines(self, x, y, **options)
