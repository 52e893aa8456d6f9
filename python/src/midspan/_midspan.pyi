"""What of the package is Rust (crates/lab/python)."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

_Run = tuple[int, str, int]

def seconds(text: str) -> float:
    """``"0.5 ms"`` in seconds."""

def bits_per_second(text: str) -> int:
    """``"100 Mbit/s"`` in bit/s."""

def byte_size(text: str) -> int:
    """``"64 KiB"`` in bytes."""

def fraction(text: str) -> float:
    """``"0.5 %"`` as a fraction of one."""

class Packet:
    """A packet, as an element sees it."""

    @property
    def wire_bytes(self) -> int:
        """Bytes on the wire, IP header included."""
    @property
    def burst(self) -> int:
        """The number of the segmentation-offload super-packet that it was cut from."""
    @property
    def ecn_capable(self) -> bool:
        """Its sender can use a mark (RFC 3168)."""
    @property
    def ce(self) -> bool:
        """It is marked already."""
    @property
    def is_pure_ack(self) -> bool:
        """It acknowledges, and does nothing else."""
    @property
    def held(self) -> int:
        """Packets that the element holds, this one not counted."""
    @property
    def held_bytes(self) -> int:
        """Bytes of these."""

class Pass:
    """The packet goes on ``after`` so many seconds, marked if its sender can use a ``mark``."""

    def __init__(self, after: float = 0.0, mark: bool = False) -> None: ...
    @property
    def after(self) -> float: ...
    @property
    def mark(self) -> bool: ...

class Drop:
    """The packet is dropped."""

    def __init__(self) -> None: ...

class ControlBase:
    """What of a congestion control the stack reads and writes. Windows are in packets of ``mss``
    bytes of payload, times in seconds; counters are 32 bits wide, and wrap."""

    def __init__(self, *args: Any, **settings: Any) -> None: ...
    @property
    def cwnd(self) -> float:
        """Packets that may be in flight, at least 1. A part of one is kept, and not sent."""
    @cwnd.setter
    def cwnd(self, packets: float) -> None: ...
    @property
    def ssthresh(self) -> float:
        """The threshold of slow start, at least 1; infinite before any loss."""
    @ssthresh.setter
    def ssthresh(self, packets: float) -> None: ...
    @property
    def pacing_rate(self) -> float | None:
        """Bit/s of payload. With ``owns_window`` the rate to send at, without one never to exceed.
        ``None``: as fast as the window allows, or as the stack paces."""
    @pacing_rate.setter
    def pacing_rate(self, rate: float | None) -> None: ...
    @property
    def prior_cwnd(self) -> float:
        """The window when the last reduction began; 0 before any."""
    @property
    def state(self) -> Literal["open", "disorder", "cwr", "recovery", "loss"]:
        """What the stack is doing about the window, by Linux's names: ``cwr`` reduces it for ECN,
        ``recovery`` for loss, ``loss`` is after a timeout."""
    @property
    def now(self) -> float:
        """Since the run began."""
    @property
    def mss(self) -> int:
        """Bytes of payload in a full packet."""
    @property
    def in_flight(self) -> int:
        """Packets sent, and neither delivered nor held lost."""
    @property
    def delivered(self) -> int:
        """Packets delivered since the connection began."""
    @property
    def delivered_ce(self) -> int:
        """Of these, how many had met a mark, as the receiver says."""
    @property
    def lost(self) -> int:
        """Packets held lost since the connection began, each time counted."""
    @property
    def snd_una(self) -> int:
        """The first byte that is not acknowledged."""
    @property
    def snd_nxt(self) -> int:
        """The next byte to send."""
    @property
    def srtt(self) -> float | None:
        """Smoothed round-trip time (RFC 6298)."""
    @property
    def min_rtt(self) -> float | None:
        """Least round-trip time of the last five minutes."""

class Ack:
    """An acknowledgement that acknowledged something."""

    @property
    def acked(self) -> int:
        """Packets that it delivered, cumulatively or by SACK."""
    @property
    def advanced(self) -> int:
        """Packets that it acknowledged cumulatively, whether they were SACKed before or not."""
    @property
    def rtt(self) -> float | None:
        """Round-trip time of the packet sent last among them, seconds, if one was measured."""
    @property
    def prior_in_flight(self) -> int:
        """Packets in flight before it."""
    @property
    def delivery_rate(self) -> float | None:
        """Bit/s of payload (draft-cheng-iccrg-delivery-rate-estimation), if there is a sample."""
    @property
    def interval(self) -> float | None:
        """Seconds that the sample is over."""
    @property
    def prior_delivered(self) -> int:
        """``delivered`` when the packet that gave the sample was sent."""
    @property
    def tx_in_flight(self) -> int:
        """Packets in flight when it was sent, itself counted; 0 if not known."""
    @property
    def tx_lost(self) -> int:
        """Packets held lost since it was sent."""
    @property
    def app_limited(self) -> bool:
        """The application had too little to send for the sample to be the path's."""
    @property
    def cwnd_limited(self) -> bool:
        """The window was what limited sending (RFC 7661): only then may it grow."""
    @property
    def ece(self) -> bool:
        """It carries ECN-Echo (RFC 3168)."""
    @property
    def wla(self) -> bool:
        """A base station has marked it (TCP-ME's wireless loss alarm)."""

class Table:
    """A table that is read through Arrow's C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...
    @property
    def columns(self) -> list[str]:
        """The columns' names."""
    @property
    def units(self) -> list[tuple[str, str]]:
        """Column and unit, of those that have one."""

class Records:
    """Records, in the order in which they were made."""

    def __init__(self) -> None: ...
    @staticmethod
    def from_jsonl(text: str, file: str = "records") -> Records: ...
    def __len__(self) -> int: ...
    def extend(self, others: Records) -> None: ...
    def jsonl(self) -> str: ...
    def digest(self) -> str: ...
    def table(self, name: str) -> Table: ...
    @staticmethod
    def tables() -> list[str]: ...
    def summary(self, of: Parsed) -> str: ...
    def html(self, of: Parsed) -> str: ...

class Parsed:
    """A scenario that was read, or the short version of one."""

    def __init__(self, text: str, file: str, short: bool = False) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def repetitions(self) -> int: ...
    @property
    def variants(self) -> list[str]: ...
    @property
    def axes(self) -> list[tuple[str, list[str]]]: ...
    @property
    def cells(self) -> list[dict[str, str]]: ...
    @property
    def digest(self) -> str: ...
    @property
    def has_short(self) -> bool: ...
    @property
    def traces(self) -> list[str]: ...
    def plan(
        self, variants: Sequence[str], only: Sequence[tuple[str, str]], done: Records
    ) -> list[_Run]: ...

class Folder:
    """A results folder, open to be written to by nobody else."""

    @staticmethod
    def open(
        base: str | PathLike[str],
        parsed: Parsed,
        variants: Sequence[str],
        only: Sequence[tuple[str, str]],
        fresh: bool,
        command: str,
    ) -> Folder: ...
    @staticmethod
    def read(directory: str | PathLike[str]) -> tuple[Records, str]: ...
    @property
    def directory(self) -> PathLike[str]: ...
    def records(self) -> Records: ...
    def add(self, records: Records) -> None: ...
    def write(self, name: str, text: str) -> PathLike[str]: ...

def simulate(
    parsed: Parsed,
    runs: Sequence[_Run],
    keep: Callable[[Records], Any],
    traces: Mapping[str, Any],
    elements: Mapping[str, Callable[..., Any]],
    controls: Mapping[str, Callable[..., Any]],
    captures: str | None = None,
    qlog: str | None = None,
) -> None:
    """Makes runs on all cores, and hands over the record of each, in their order."""
