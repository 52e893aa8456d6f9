"""What tests share. `./run python` builds what they need and says where it is."""

import os
import shutil
from pathlib import Path

import pytest

import midspan

ROOT = Path(__file__).resolve().parents[2]

#: A second of upload over 20 Mbit/s, over two axes.
UPLOAD = {
    "name": "upload",
    "title": "Uploads over a lossy radio link",
    "seed": 7,
    "repetitions": 2,
    "variants": ["none", "midspan"],
    "path": {
        "access": {
            "up": [
                {"rate": {"rate": "20 Mbit/s", "queue": {"bytes": "100 KB"}}},
                {"loss": {"share": "$loss"}},
                {"delay": "$rtt.access"},
            ],
            "down": [{"delay": "$rtt.access"}],
        },
        "wide": {"up": [{"delay": "10 ms"}], "down": [{"delay": "10 ms"}]},
    },
    "workload": {"kind": "bulk", "direction": "upload", "time": "1 s", "warmup": "200 ms"},
    "sweep": {
        "loss": ["0 %", "1 %"],
        "rtt": [{"label": "22 ms", "access": "1 ms"}, {"label": "30 ms", "access": "5 ms"}],
    },
}


@pytest.fixture
def upload() -> midspan.Scenario:
    return midspan.Scenario(UPLOAD)


@pytest.fixture
def scenarios() -> Path:
    return ROOT / "scenarios"


@pytest.fixture
def program() -> str:
    """The program `midspan`."""
    found = shutil.which(os.environ.get("MIDSPAN", "midspan"))
    if found is None:
        pytest.skip("no program `midspan`: `./run python` builds it, or MIDSPAN names it")
    return found
