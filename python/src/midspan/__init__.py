"""Scenarios of TCP across the edge of a mobile network, simulated and live.

>>> import midspan
>>> results = midspan.run("scenarios/mec/3a.toml", short=True)
>>> results.to_polars()

docs/howto/python.md of the project describes the package, docs/reference/scenario.md the scenarios.
"""

from ._errors import ScenarioError
from ._midspan import Ack, Drop, Packet, Pass, bits_per_second, byte_size, fraction, seconds
from ._run import Progress, run
from .control import CongestionControl
from .element import Element
from .results import Results
from .scenario import Scenario

__all__ = [
    "Ack",
    "CongestionControl",
    "Drop",
    "Element",
    "Packet",
    "Pass",
    "Progress",
    "Results",
    "Scenario",
    "ScenarioError",
    "bits_per_second",
    "byte_size",
    "fraction",
    "run",
    "seconds",
]
