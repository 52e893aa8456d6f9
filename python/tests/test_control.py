"""Congestion controls written in Python."""

import functools
import math
import subprocess
import traceback

import pytest
from conftest import UPLOAD

import midspan


def scenario(control="external:mine", **changes):
    """The upload by `control` over a lossy path without a sweep."""
    mapping = midspan.Scenario(UPLOAD).to_dict()
    mapping["path"]["access"] = {
        "up": [
            {"rate": {"rate": "20 Mbit/s", "queue": {"bytes": "100 KB"}}},
            {"loss": {"share": "0.3 %"}},
        ],
        "down": [{"delay": "5 ms"}],
    }
    mapping["hosts"] = {"ue": {"congestion_control": control}}
    mapping["workload"]["time"] = "5 s"
    del mapping["sweep"]
    return midspan.Scenario(mapping).changed(changes)


class Reno(midspan.CongestionControl):
    """RFC 5681, in whole packets, as the lab's own is."""

    credit = 0

    def on_ack(self, ack):
        if not ack.cwnd_limited:
            return
        acked = ack.acked
        if self.cwnd < self.ssthresh:
            step = min(acked, self.ssthresh - self.cwnd)
            self.cwnd += step
            acked -= step
        if acked:
            if self.credit >= self.cwnd:
                self.credit = 0
                self.cwnd += 1
            more, self.credit = divmod(self.credit + acked, self.cwnd)
            self.cwnd += more

    def on_loss(self):
        self.credit = 0
        self.ssthresh = max(self.cwnd // 2, 2)


class Fluid(midspan.CongestionControl):
    """The same, as one would write it down."""

    def on_ack(self, ack):
        if ack.cwnd_limited:
            slow_start = self.cwnd < self.ssthresh
            self.cwnd += ack.acked if slow_start else ack.acked / self.cwnd

    def on_loss(self):
        self.ssthresh = max(self.cwnd / 2, 2)


class Fixed(midspan.CongestionControl):
    """A window that nothing changes."""

    owns_window = True

    def __init__(self, *, seed, packets=20):
        super().__init__(seed=seed)
        self.packets = packets

    def on_ack(self, ack):
        self.cwnd = self.packets

    def on_loss(self):
        pass


def run(control, of=None, **keywords):
    return midspan.run(of or scenario(), controls={"mine": control}, **keywords)


def without_names(results):
    """Its records, but for what says which control made them."""
    records = results.records()
    for record in records:
        del record["digest"]
        for leg in record["legs"]:
            del leg["congestion_control"]
    return records


@pytest.mark.parametrize("changes", [{}, {"path.access.up.1.loss.share": "5 %"}])
def test_reno_in_python_is_the_labs_own(changes):
    theirs = midspan.run(scenario("reno", **changes), variants=["none"])
    mine = run(Reno, scenario(**changes), variants=["none"])
    assert without_names(mine) == without_names(theirs)
    assert theirs.records()[0]["sender_retransmits"] > 0


def test_parts_of_packets_count():
    theirs = midspan.run(scenario("reno"), repetitions=5).to_pandas().groupby("variant")
    mine = run(Fluid, repetitions=5).to_pandas().groupby("variant")
    for variant, goodput in theirs["goodput_bps"].mean().items():
        assert mine["goodput_bps"].mean()[variant] == pytest.approx(goodput, rel=0.05)


@pytest.mark.parametrize("packets", [1, 4, 10])
def test_a_fixed_window_is_its_packets_in_a_round_trip(packets):
    path = {"up": [{"delay": "10 ms"}], "down": [{"delay": "10 ms"}]}
    still = {"path.access": path, "hosts.server.quickack": True}
    of = scenario(**still)
    results = run(functools.partial(Fixed, packets=packets), of, variants=["none"], repetitions=1)
    (record,) = results.records()
    expected = packets * 1448 * 8 / 0.040
    assert record["goodput_bps"] == pytest.approx(expected, rel=0.01)
    assert record["sender_retransmits"] == 0
    assert record["legs"][0]["cwnd"] == packets


def test_a_pacing_rate_is_kept_to():
    class Paced(Fixed):
        def on_established(self):
            self.cwnd = self.packets = 1000
            self.pacing_rate = 3e6

    of = scenario(**{"path.access.up": [{"delay": "5 ms"}]})
    (record,) = run(Paced, of, variants=["none"], repetitions=1).records()
    assert record["goodput_bps"] == pytest.approx(3e6, rel=0.01)


def test_records_say_that_a_control_is_from_outside():
    results = run(Reno)
    legs = results.to_polars("legs").filter(host="ue")
    assert set(legs["congestion_control"]) == {"external:mine"}


def test_it_is_an_axis_as_any_other():
    controls = ["reno", "external:mine", "external:fixed"]
    sweep = scenario().sweep({"hosts.ue.congestion_control": controls})
    results = midspan.run(sweep, controls={"mine": Reno, "fixed": Fixed}, variants=["none"])
    goodput = results.to_pandas().groupby("congestion_control")["goodput_bps"].mean()
    assert goodput["external:mine"] > 0 and goodput["external:fixed"] > 0


def test_legs_of_the_relay_take_one():
    leg = {"relay.client_leg.congestion_control": "external:a-long-name"}
    of = scenario("reno", **leg).changed({"workload.direction": "download"})
    results = midspan.run(of, controls={"a-long-name": Reno}, variants=["midspan"])
    legs = results.to_polars("legs").filter(host="mec", leg="client")
    assert set(legs["congestion_control"]) == {"external:a-long-name"}
    assert results.to_polars()["goodput_bps"].min() > 0


def test_what_is_random_is_the_same_again():
    class Dice(Reno):
        def on_loss(self):
            self.ssthresh = max(self.cwnd * self.random.uniform(0.3, 0.9), 2)

    first, again = (run(Dice) for _ in range(2))
    assert first.to_jsonl() == again.to_jsonl()


def test_it_is_told_what_the_stack_knows():
    told = []

    class Curious(Reno):
        def on_established(self):
            told.append(("established", self.now, self.cwnd, self.ssthresh, self.mss))

        def on_measure(self, ack):
            assert ack.delivery_rate is None
            told.append(("measure", self.now))

        def on_ack(self, ack):
            super().on_ack(ack)
            told.append(("ack", self.now, ack.rtt, ack.delivery_rate))

        def on_loss(self):
            super().on_loss()
            told.append(("loss", self.now, self.prior_cwnd, self.ssthresh))

        def on_reduced(self):
            told.append(("reduced", self.now, self.cwnd, self.ssthresh))

    run(Curious, variants=["none"], repetitions=1)
    times = [at for _, at, *_ in told]
    assert times == sorted(times) and 5 < times[-1] < 6
    assert told[0][0] == "established" and told[0][2:] == (10, math.inf, 1448)
    calls = {name: [what for of, _, *what in told if of == name] for name, *_ in told}
    assert all(half == max(prior // 2, 2) for prior, half in calls["loss"])
    assert 0 < len(calls["reduced"]) <= len(calls["loss"])
    assert all(cwnd == half for cwnd, half in calls["reduced"])
    # Not while the stack reduces the window.
    assert len(calls["ack"]) < len(calls["measure"])
    assert 0.025 <= min(rtt for rtt, _ in calls["ack"] if rtt is not None) < 0.03
    assert 1e6 < max(rate for _, rate in calls["ack"] if rate is not None) <= 25e6


def test_a_timeout_is_told_as_one():
    timeouts = []

    class Curious(Reno):
        def on_timeout(self):
            super().on_timeout()
            timeouts.append((self.now, self.cwnd, self.ssthresh))

    black = scenario(**{"path.access.up.1.loss.share": "40 %"})
    run(Curious, black, variants=["none"], repetitions=1)
    assert timeouts and all(half == max(cwnd // 2, 2) for _, cwnd, half in timeouts)


def test_an_exception_is_raised_with_its_traceback():
    class Broken(Reno):
        def on_loss(self):
            raise ZeroDivisionError("in the control")

    with pytest.raises(ZeroDivisionError, match="in the control") as raised:
        run(Broken)
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert frames[-1].name == "on_loss"


@pytest.mark.parametrize("packets", [0, -3, 0.5, math.nan, math.inf, 2**31])
def test_a_window_that_cannot_be_is_refused_where_it_is_set(packets):
    class Odd(Reno):
        def on_ack(self, ack):
            self.cwnd = packets

    with pytest.raises(ValueError, match="1 to 1073741824 packets, not") as raised:
        run(Odd)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "on_ack"


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("ssthresh", 0, "at least 1 packet, not 0"),
        ("ssthresh", math.nan, "at least 1 packet, not NaN"),
        ("pacing_rate", 0, "8 to 1e15 bit/s or None, not 0"),
        ("pacing_rate", -1e6, "not -1000000"),
        ("pacing_rate", math.nan, "not NaN"),
    ],
)
def test_so_is_a_threshold_or_a_rate(name, value, match):
    with pytest.raises(ValueError, match=match):
        setattr(Reno(seed=1), name, value)


def test_a_word_is_no_window():
    with pytest.raises(TypeError, match="str"):
        Reno(seed=1).cwnd = "many"


def test_what_is_no_control_is_refused():
    class Half(midspan.CongestionControl):
        def on_ack(self, ack):
            pass

    with pytest.raises(TypeError, match="on_loss"):
        run(Half)
    with pytest.raises(TypeError, match=r"`mine` must make a midspan.CongestionControl, not dict"):
        run(lambda seed: {})
    with pytest.raises(TypeError, match="packts"):
        run(functools.partial(Fixed, packts=3))


def test_a_control_that_nobody_brought():
    results = midspan.run(scenario())
    reasons = [run["reason"] for run in results.records()]
    assert all("nobody gave a congestion control `mine`" in reason for reason in reasons)
    with pytest.raises(midspan.ScenarioError, match="not the name of a congestion control"):
        scenario("external:")


def test_live_runs_have_none(program, tmp_path):
    with pytest.raises(ValueError, match="controls from outside are only simulated"):
        midspan.run(scenario(), "live", controls={"mine": Reno}, program=program)
    file = tmp_path / "mine.toml"
    file.write_text(scenario().to_toml())
    for backend in ("sim", "live"):
        command = [program, "lab", "run", file, "--backend", backend, "--out", tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        what = "`mine` is external: only the Python package runs the scenario"
        assert what in done.stderr
