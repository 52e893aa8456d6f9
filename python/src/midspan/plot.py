"""Plots for notebooks, by matplotlib."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ._midspan import bits_per_second, byte_size, fraction, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .results import Results

#: What a quantity on an axis is drawn in: how it is read, what for, its unit.
_QUANTITIES = [
    (seconds, 1e3, "ms"),
    (fraction, 1e2, "%"),
    (bits_per_second, 1e-6, "Mbit/s"),
    (byte_size, 1e-3, "KB"),
]
_SCALES = {"bit/s": (1e-6, "Mbit/s"), "us": (1e-3, "ms")}
_NAMES = {"none": "no proxy", "midspan": "Midspan", "haproxy": "HAProxy"}


def lines(
    results: Results, x: str | None = None, y: str = "goodput_bps", *, ax: Axes | None = None
) -> Axes:
    """A column of the table ``runs`` over an axis of the sweep, by default the last.

    The median of the repetitions of each variant is a line, from their least to their greatest is a
    band. Cells that differ in other axes have lines of their own.
    """
    axes = results.scenario.axes
    x = x or (list(axes)[-1] if axes else None)
    if x not in axes:
        known = ", ".join(axes) or "none"
        raise ValueError(f"no axis `{x}` in the sweep: there is {known}")
    labels = axes[x]
    places, unit = _places(labels)
    table = results.table("runs")
    scale, shown = _scale(dict(table.units).get(y, ""))
    found: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(results, y):
        others = [f"{axis} {row[axis]}" for axis in axes if axis != x and len(axes[axis]) > 1]
        line = (_NAMES.get(row["variant"], row["variant"]), *others)
        if row[y] is not None:
            found[line][row[x]].append(row[y] * scale)
    ax = ax or _axes()
    for name, points in found.items():
        there = [label for label in labels if points[label]]
        at = [places[label] for label in there]
        (drawn,) = ax.plot(
            at, [median(points[label]) for label in there], marker="o", label=", ".join(name)
        )
        low, high = [min(points[label]) for label in there], [max(points[label]) for label in there]
        ax.fill_between(at, low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
    if unit is None:
        ax.set_xticks(list(places.values()), labels)
    ax.set_xlabel(f"{x}, {unit}" if unit else x)
    ax.set_ylabel(f"{_word(y)}, {shown}" if shown else _word(y))
    ax.set_ylim(bottom=0)
    ax.set_title(results.scenario.title, loc="left", fontsize="medium", wrap=True)
    ax.grid(alpha=0.3)
    ax.legend()
    return ax


def cdf(results: Results, column: str, table: str = "runs", *, ax: Axes | None = None) -> Axes:
    """How a column of a table is distributed, a line for each variant."""
    scale, shown = _scale(dict(results.table(table).units).get(column, ""))
    found: dict[str, list[float]] = defaultdict(list)
    for row in _rows(results, column, table):
        if row[column] is not None:
            found[row["variant"]].append(row[column] * scale)
    ax = ax or _axes()
    for variant, values in found.items():
        ax.ecdf(values, label=f"{_NAMES.get(variant, variant)} ({len(values)})")
    ax.set_xlabel(f"{_word(column)}, {shown}" if shown else _word(column))
    ax.set_ylabel("share of all")
    ax.grid(alpha=0.3)
    ax.legend()
    return ax


def _axes() -> Axes:
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7, 4), layout="constrained")[1]


def _rows(results: Results, column: str, name: str = "runs") -> list[dict[str, Any]]:
    table = results.to_arrow(name)
    if column not in table.column_names:
        known = ", ".join(table.column_names)
        raise ValueError(f"no column `{column}` in the table {name}: there are {known}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _places(labels: Sequence[str]) -> tuple[dict[str, float], str | None]:
    """Where labels stand on an axis: by their quantity, or else one beside the other."""
    for read, scale, unit in _QUANTITIES:
        try:
            return {label: read(label) * scale for label in labels}, unit
        except ValueError:
            continue
    return {label: float(place) for place, label in enumerate(labels)}, None


def _scale(unit: str) -> tuple[float, str]:
    return _SCALES.get(unit, (1.0, unit))


def _word(column: str) -> str:
    """The column's name without its unit."""
    for unit in ("_bps", "_us", "_s"):
        column = column.removesuffix(unit)
    return column.replace("_", " ")
