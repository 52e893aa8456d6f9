"""Scenarios as TOML and as objects."""

import pickle
import sys

import pytest
from conftest import UPLOAD
from hypothesis import given, settings
from hypothesis import strategies as st

import midspan
from midspan import _toml
from midspan.scenario import _axis_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_an_object_and_its_text_are_one_scenario(upload):
    again = midspan.Scenario.from_toml(upload.to_toml())
    assert again == upload
    assert again.digest == upload.digest
    assert again.to_dict() == UPLOAD
    assert pickle.loads(pickle.dumps(upload)).digest == upload.digest


def test_a_file_says_what_it_says(scenarios):
    scenario = midspan.Scenario.from_toml(scenarios / "mec" / "3a.toml")
    assert (scenario.name, scenario.repetitions) == ("mec-3a", 3)
    assert list(scenario.axes) == ["unit", "loss"]
    assert len(scenario.short.cells) < len(scenario.cells)


def test_what_is_made_of_a_files_keys_is_the_same(scenarios):
    paths = sorted(scenarios.glob("*/*.toml"))
    assert len(paths) > 50
    for path in paths:
        read = midspan.Scenario.from_toml(path)
        made = midspan.Scenario(read.to_dict())
        assert (made.digest, made.axes) == (read.digest, read.axes), path


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(texts, values, max_size=4))
def test_mappings_survive_as_toml(mapping):
    assert tomllib.loads(_toml.dumps(mapping)) == mapping


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": [b"bytes"]}])
def test_what_no_scenario_has(value):
    with pytest.raises(TypeError, match="a scenario"):
        midspan.Scenario({"name": value})


def test_axes_and_cells(upload):
    assert upload.axes == {"loss": ["0 %", "1 %"], "rtt": ["22 ms", "30 ms"]}
    assert upload.cells[1] == {"loss": "0 %", "rtt": "30 ms"}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"workload.tme": "1 s"}, "unknown key `tme`"),
        ({"path.access.up.0.rate.rate": "20 Mbps"}, "20 Mbps"),
        ({"repetitions": 0}, "repetitions"),
        ({"workload.warmup": "3 s"}, "warm"),
        ({"title": None}, "`title` is missing"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(upload, changes, what):
    with pytest.raises(midspan.ScenarioError) as refused:
        upload.changed(changes)
    told = str(refused.value)
    assert what in told and "\n" not in told
    assert told.startswith(f"scenario:{refused.value.line}: ")


def test_an_error_in_a_file_names_file_and_line(tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text('name = "bad"\ntitel = "Bad"\n')
    with pytest.raises(midspan.ScenarioError) as refused:
        midspan.Scenario.from_toml(file)
    error = refused.value
    assert (error.file, error.line, error.source) == (str(file), 2, 'titel = "Bad"')
    assert "title" in error.what


def test_changes_make_another_scenario(upload):
    other = upload.changed({"seed": 8, "path.wide.up.0.delay": "20 ms"})
    assert (other.seed, upload.seed) == (8, 7)
    assert other.to_dict()["path"]["wide"]["up"] == [{"delay": "20 ms"}]
    assert other.digest != upload.digest
    with pytest.raises(ValueError, match="from 0 to 2"):
        upload.changed({"path.access.up.3.delay": "1 ms"})


def test_a_sweep_varies_variables_and_keys(upload):
    sweep = upload.sweep(
        {
            "loss": ["0 %", "0.1 %", "1 %"],
            "rtt": [{"label": "22 ms", "access": "1 ms"}],
            "path.wide.up.0.delay": ["5 ms", "10 ms"],
            "workload.flows": [1, 4],
            "path.access.up.0.rate.rate": ["20 Mbit/s"],
        }
    )
    assert list(sweep.axes) == ["loss", "rtt", "delay", "flows", "rate"]
    assert sweep.axes["delay"] == ["5 ms", "10 ms"]
    assert sweep.axes["flows"] == ["1", "4"]
    assert len(sweep.cells) == 3 * 2 * 2
    with pytest.raises(ValueError, match=r"no `\$lss`"):
        upload.sweep({"lss": ["0 %"]})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("path.access.up.1.loss.share", "loss_share"),
        ("path.access.up.0.rate.rate", "rate"),
        ("path.access.up.1.external.with.share", "external_share"),
        ("workload.flows", "flows"),
        ("hosts.ue.flows", "ue_flows"),
    ],
)
def test_axes_of_keys_have_names_that_say_something(path, name):
    assert _axis_name(path, {"flows": [1]} if "hosts" in path else {}) == name


def test_quantities():
    assert midspan.seconds("0.5 ms") == 0.0005
    assert midspan.bits_per_second("100 Mbit/s") == 100_000_000
    assert midspan.byte_size("64 KiB") == 65_536
    assert midspan.fraction("0.5 %") == 0.005
    with pytest.raises(ValueError, match="ms"):
        midspan.seconds("5")
