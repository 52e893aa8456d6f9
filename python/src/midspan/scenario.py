"""Scenarios: read from TOML, or made of objects. Either way the lab's own parser reads them."""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _toml
from ._midspan import Parsed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Scenario:
    """One experiment: a path, where connections are split, what runs over it, what is varied.

    ``Scenario(mapping)`` has the keys of a scenario file (docs/reference/scenario.md), as
    :meth:`from_toml` has its text. What is unknown, missing or impossible is a
    :class:`~midspan.ScenarioError`. Scenarios do not change: what modifies one answers another.
    """

    def __init__(
        self, mapping: Mapping[str, Any], *, directory: str | os.PathLike[str] = "."
    ) -> None:
        self._set(_toml.dumps(mapping), "scenario", Path(directory), short=False)

    @classmethod
    def from_toml(
        cls,
        source: str | os.PathLike[str],
        *,
        directory: str | os.PathLike[str] | None = None,
    ) -> Scenario:
        """From a scenario file, or from the text of one: a ``str`` of more than one line.

        The traces that its paths name are looked for in ``directory``, by default the file's.
        """
        if isinstance(source, str) and "\n" in source:
            return cls._of(source, "scenario", Path(directory or "."))
        path = Path(source)
        text = path.read_text(encoding="utf-8")
        return cls._of(text, str(source), Path(directory or path.parent))

    @classmethod
    def _of(cls, text: str, file: str, directory: Path, short: bool = False) -> Scenario:
        scenario = cls.__new__(cls)
        scenario._set(text, file, directory, short=short)
        return scenario

    def _set(self, text: str, file: str, directory: Path, *, short: bool) -> None:
        self._text, self._file, self._directory, self._is_short = text, file, directory, short
        self._parsed = Parsed(text, file, short)

    def __reduce__(self) -> tuple[Any, ...]:
        return Scenario._of, (self._text, self._file, self._directory, self._is_short)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scenario):
            return NotImplemented
        return (self._text, self._is_short) == (other._text, other._is_short)

    def __hash__(self) -> int:
        return hash((self._text, self._is_short))

    def __repr__(self) -> str:
        return f"<Scenario {self.name}: {len(self.cells)} cells, {', '.join(self.variants)}>"

    @property
    def name(self) -> str:
        """Names the results."""
        return self._parsed.name

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return self._parsed.title

    @property
    def seed(self) -> int:
        """Where all randomness of the path comes from."""
        return self._parsed.seed

    @property
    def repetitions(self) -> int:
        """Runs of each variant in each cell."""
        return self._parsed.repetitions

    @property
    def variants(self) -> list[str]:
        """What stands in the middle: ``none``, ``midspan``, ``haproxy``."""
        return self._parsed.variants

    @property
    def axes(self) -> dict[str, list[str]]:
        """The axes of its sweep with the labels of their points; the last one turns fastest."""
        return dict(self._parsed.axes)

    @property
    def cells(self) -> list[dict[str, str]]:
        """Every point of the sweep: axis -> label."""
        return self._parsed.cells

    @property
    def digest(self) -> str:
        """A hash of all that determines a run's result."""
        return self._parsed.digest

    @property
    def short(self) -> Scenario:
        """The quick version that its ``[short]`` describes."""
        return Scenario._of(self._text, self._file, self._directory, short=True)

    def to_toml(self) -> str:
        """Its text, as `midspan lab run` reads it."""
        return self._text

    def to_dict(self) -> dict[str, Any]:
        """Its keys, to be changed at will and made a scenario again."""
        return tomllib.loads(self._text)

    def changed(self, changes: Mapping[str, Any]) -> Scenario:
        """Another scenario with these keys, each a path such as ``"workload.time"`` or
        ``"path.access.up.0.delay"`` (elements counted from 0). ``None`` takes a key away."""
        mapping = self.to_dict()
        for path, value in changes.items():
            _set_at(mapping, path, value)
        return self._again(mapping)

    def sweep(self, axes: Mapping[str, Sequence[Any]]) -> Scenario:
        """Another scenario that runs the product of ``axes``, in place of its own sweep.

        An axis is a variable that the scenario names (``loss``, where it says ``"$loss"``), or the
        path of a key, as in :meth:`changed`; then the axis is called by the path's last words, such
        as ``loss_share``. Its points are values, or mappings with a ``label`` as in a file.
        """
        mapping = self.to_dict()
        # They speak of the axes that go.
        for key in ("short", "reported", "skip", "compare"):
            mapping.pop(key, None)
        sweep: dict[str, Any] = {}
        for axis, points in axes.items():
            name = axis
            if not re.search(rf"\${re.escape(axis)}\b", self._text):
                if "." not in axis:
                    raise ValueError(
                        f"the scenario names no `${axis}`, and no key is a path of one word"
                    )
                name = _axis_name(axis, sweep)
                _set_at(mapping, axis, f"${name}")
            sweep[name] = list(points)
        mapping["sweep"] = sweep
        return self._again(mapping)

    def _again(self, mapping: Mapping[str, Any]) -> Scenario:
        scenario = Scenario(mapping, directory=self._directory)
        return scenario.short if self._is_short and "short" in mapping else scenario

    def _traces(self) -> dict[str, bytes]:
        return {name: (self._directory / name).read_bytes() for name in self._parsed.traces}


def _set_at(mapping: dict[str, Any], path: str, value: Any) -> None:
    *way, last = path.split(".")
    place: Any = mapping
    for word in way:
        if isinstance(place, list):
            place = place[_index(place, word, path)]
        else:
            place = place.setdefault(word, {})
        if not isinstance(place, (dict, list)):
            raise ValueError(f"`{path}`: `{word}` is a value, and has no keys")
    if isinstance(place, list):
        place[_index(place, last, path)] = copy.deepcopy(value)
    elif value is None:
        place.pop(last, None)
    else:
        place[last] = copy.deepcopy(value)


def _index(place: list[Any], word: str, path: str) -> int:
    if not word.isdecimal() or int(word) >= len(place):
        raise ValueError(f"`{path}`: `{word}` must be a number from 0 to {len(place) - 1}")
    return int(word)


#: Keys that say little without the element whose they are: a share of what?
_SAY_LITTLE = {"share", "by", "name"}


def _axis_name(path: str, taken: Mapping[str, Any]) -> str:
    """The path's last words: as many as it takes to say something, and not what is taken."""
    words = [word for word in re.split(r"[.-]", path) if not word.isdecimal() and word != "with"]
    for count in range(1, len(words) + 1):
        name = "_".join(dict.fromkeys(words[-count:]))
        if name not in taken and name not in _SAY_LITTLE:
            return name
    return "_".join(re.split(r"[.-]", path))
