"""What of the package is Rust (crates/lab/python)."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

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
) -> None:
    """Makes runs on all cores, and hands over the record of each, in their order."""
