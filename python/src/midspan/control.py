"""Congestion controls written in Python."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar

from ._midspan import Ack, ControlBase


class CongestionControl(ControlBase, ABC):
    """A congestion control. A scenario names it as ``congestion_control = "external:mine"``, and
    ``midspan.run(scenario, controls={"mine": Mine})`` brings it.

    One is made for each connection, when that is established. The stack tells it of what happens
    by the methods below; it answers by setting :attr:`cwnd`, :attr:`ssthresh` and
    :attr:`pacing_rate`. What it decides must hang on what it is told alone: then the same run gives
    the same record, whoever makes it. Any callable that takes ``seed`` and makes a
    ``CongestionControl`` may be brought, such as ``functools.partial(Mine, beta=0.7)``.

    An exception ends all runs and is raised where they were asked for.
    """

    #: Who reduces the window. ``False``, as with Linux's ``cong_avoid``: the stack, down to
    #: :attr:`ssthresh` by proportional rate reduction (RFC 9937), and to one packet after a
    #: timeout. ``True``, as with ``cong_control``: the control sets :attr:`cwnd` and
    #: :attr:`pacing_rate` throughout, but for the one packet after a timeout.
    owns_window: ClassVar[bool] = False

    def __init__(self, *, seed: int) -> None:
        #: Random numbers of this connection's own: the same when the run is made again.
        self.random = random.Random(seed)

    @abstractmethod
    def on_ack(self, ack: Ack) -> None:
        """Packets were acknowledged, and losses have been looked for: grows the window, unless
        the stack is reducing it. With :attr:`owns_window` in whatever state, and also when
        packets were found lost and none acknowledged."""

    @abstractmethod
    def on_loss(self) -> None:
        """Packets were found lost by acknowledgements (RFC 8985): sets :attr:`ssthresh`, once
        for each reduction."""

    def on_ecn(self) -> None:
        """The network has marked packets (RFC 3168), or a tail loss probe has repaired a loss
        (RFC 8985): sets :attr:`ssthresh`. As :meth:`on_loss`."""
        self.on_loss()

    def on_timeout(self) -> None:
        """A retransmission timeout (RFC 6298): sets :attr:`ssthresh`. As :meth:`on_loss`."""
        self.on_loss()

    def on_undo(self) -> None:
        """The last reduction was a mistake (RFC 3522, RFC 3708, RFC 5682): sets :attr:`cwnd` back;
        the stack does so with :attr:`ssthresh`. To what it was before, if it is less now."""
        self.cwnd = max(self.cwnd, self.prior_cwnd)

    def on_established(self) -> None:
        """The connection is established, with a window of ten packets unless the host has another
        one."""

    def on_measure(self, ack: Ack) -> None:
        """As :meth:`on_ack`, but in whatever state, and before losses are looked for. Of ``ack``
        the delivery rate and ``cwnd_limited`` are not known yet."""

    def on_reduced(self) -> None:
        """A reduction for loss or marks is over."""

    def on_transmit_start(self) -> None:
        """A packet is sent when none was in flight."""

    def on_restart(self) -> None:
        """The same after more than a retransmission timeout: the stack has taken back the window
        (RFC 2861)."""
