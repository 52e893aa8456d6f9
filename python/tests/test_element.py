"""Path elements written in Python."""

import subprocess
import traceback

import pytest
from conftest import UPLOAD

import midspan


def scenario(**settings):
    """The upload over an element `mine` in place of loss and delay."""
    mine = {"external": {"name": "mine", **({"with": settings} if settings else {})}}
    mapping = midspan.Scenario(UPLOAD).to_dict()
    mapping["path"]["access"] = {
        "up": [{"rate": {"rate": "20 Mbit/s"}}, mine],
        "down": [{"delay": "1 ms"}],
    }
    del mapping["sweep"]
    return midspan.Scenario(mapping)


class Lossy(midspan.Element):
    """A millisecond, and a share that is lost."""

    def __init__(self, *, seed, share="1 %"):
        super().__init__(seed=seed)
        self.share = midspan.fraction(share)

    def packet(self, now, packet):
        if self.random.random() < self.share:
            return midspan.Drop()
        return midspan.Pass(after=0.001)


def dropped(results):
    frame = results.to_polars("links").filter(link="access", way="up")
    return frame["dropped"].sum() / frame["packets_in"].sum()


def test_an_element_drops_and_delays():
    results = midspan.run(scenario(share="2 %"), elements={"mine": Lossy})
    assert 0.01 < dropped(results) < 0.03
    (cause,) = results.records()[0]["links"][0]["up"]["dropped"]
    assert cause == "external"
    rtt = results.to_polars("legs").filter(leg="end-to-end")["min_rtt_us"].min()
    assert 22_000 <= rtt < 25_000


def test_what_it_decides_is_the_same_again():
    first, again = (midspan.run(scenario(), elements={"mine": Lossy}) for _ in range(2))
    assert first.to_jsonl() == again.to_jsonl()
    one, other = first.records()[0], first.records()[2]
    assert one["goodput_bps"] != other["goodput_bps"]  # another repetition, another seed


def test_a_fixed_delay_is_that_of_the_path():
    class Delay:
        def __init__(self, *, seed, by):
            self.by = midspan.seconds(by)

        def packet(self, now, packet):
            return midspan.Pass(self.by)

    mine = midspan.run(scenario(by="1 ms"), elements={"mine": Delay})
    mapping = scenario().to_dict()
    mapping["path"]["access"]["up"][1] = {"delay": "1 ms"}
    theirs = midspan.run(mapping)
    goodput = [run["goodput_bps"] for run in mine.records()]
    assert goodput == [run["goodput_bps"] for run in theirs.records()]


def test_settings_can_be_swept():
    share = "path.access.up.1.external.with.share"
    sweep = scenario(share="1 %").sweep({share: ["0 %", "5 %"]})
    results = midspan.run(sweep, variants=["none"], elements={"mine": Lossy})
    goodput = dict(results.to_pandas().groupby("external_share")["goodput_bps"].mean())
    assert goodput["5 %"] < goodput["0 %"]


def test_marks_reach_senders_that_can_use_them():
    class Marks(midspan.Element):
        def packet(self, now, packet):
            return midspan.Pass(after=0.001, mark=self.random.random() < 0.05)

    ecn = scenario().changed({"hosts.ue.ecn": True, "hosts.server.ecn": True})
    results = midspan.run(ecn, variants=["none"], elements={"mine": Marks})
    links = results.to_polars("links").filter(link="access", way="up")
    assert links["marked"].min() > 0


def test_an_exception_is_raised_with_its_traceback():
    class Broken(midspan.Element):
        def packet(self, now, packet):
            if now > 0.5:
                raise ZeroDivisionError("in the element")
            return midspan.Pass(after=0.001)

    with pytest.raises(ZeroDivisionError, match="in the element") as raised:
        midspan.run(scenario(), elements={"mine": Broken})
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert frames[-1].name == "packet"


@pytest.mark.parametrize("answer", [None, 0.001, True])
def test_an_answer_that_is_none(answer):
    class Silent(midspan.Element):
        def packet(self, now, packet):
            return answer

    with pytest.raises(TypeError, match=r"must return midspan.Pass\(...\) or midspan.Drop"):
        midspan.run(scenario(), elements={"mine": Silent})


@pytest.mark.parametrize("after", [-1.0, float("nan"), float("inf")])
def test_no_time_at_all(after):
    with pytest.raises(ValueError, match="0 to 86400 seconds"):
        midspan.Pass(after)


def test_an_element_that_nobody_brought():
    results = midspan.run(scenario())
    assert all("nobody gave an element `mine`" in run["reason"] for run in results.records())


def test_one_that_cannot_be_made():
    with pytest.raises(TypeError, match="shre"):
        midspan.run(scenario(shre="1 %"), elements={"mine": Lossy})


def test_the_program_says_who_has_such_elements(program, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(scenario().to_toml())
    command = [program, "lab", "run", str(file), "--backend", "sim", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "`mine` is external: only the Python package runs the scenario" in done.stderr
