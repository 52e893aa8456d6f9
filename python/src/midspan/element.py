"""Path elements written in Python."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

from ._midspan import Drop, Packet, Pass


class Element(ABC):
    """An element of a path. A scenario names it as ``{ external = { name = "mine" } }``, and
    ``midspan.run(scenario, elements={"mine": Mine})`` brings it.

    One is made for each place where the scenario has it, in each run. What it decides must hang on
    what it is told alone: the packets, their times, ``self.random``. Then the same run gives the
    same record, whoever makes it. Anything callable with the same arguments that answers an
    object with a method ``packet`` will do as well.
    """

    def __init__(self, *, seed: int, **settings: str) -> None:
        #: Random numbers of this element's own: the same when the run is made again.
        self.random = random.Random(seed)
        #: What the scenario has in ``with``: text, such as ``"5 ms"`` (see ``midspan.seconds``).
        self.settings = settings

    @abstractmethod
    def packet(self, now: float, packet: Packet) -> Pass | Drop:
        """What becomes of a packet that comes in at ``now``, in seconds since the run began.

        Packets leave by the time that each was given, so one may overtake another. An exception
        ends all runs and is raised where they were asked for.
        """
