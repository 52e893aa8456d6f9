"""Results as Arrow, Polars and pandas, and drawn."""

import polars
import pyarrow
import pytest

import midspan
from midspan import plot
from midspan._midspan import Records


@pytest.fixture(scope="module")
def results():
    from conftest import UPLOAD

    return midspan.run(UPLOAD)


def test_a_sweep_of_200_cells_to_a_frame_in_one_line(upload):
    frame = midspan.run(
        upload.sweep(
            {
                "loss": [f"{n / 10} %" for n in range(20)],
                "rtt": [{"label": f"{2 * n} ms", "access": f"{n} ms"} for n in range(1, 11)],
            }
        ).changed({"workload.time": "300 ms", "workload.warmup": "100 ms"}),
        repetitions=1,
        variants=["none"],
    ).to_polars()  # noqa: E501
    assert frame.height == 200
    assert frame.select("loss", "rtt").n_unique() == 200
    assert frame["goodput_bps"].null_count() == 0


def test_every_table_has_what_records_have(results):
    records = results.records()
    runs = results.to_polars()
    assert runs["goodput_bps"].to_list() == [record["goodput_bps"] for record in records]
    assert runs["seed"].to_list() == [record["seed"] for record in records]
    legs = results.to_polars("legs")
    flat = [leg for record in records for leg in record["legs"]]
    assert legs["cwnd"].to_list() == [leg["cwnd"] for leg in flat]
    links = results.to_polars("links")
    ways = [link[way] for record in records for link in record["links"] for way in ("up", "down")]
    assert links["packets_out"].to_list() == [way["packets_out"] for way in ways]
    assert links["dropped"].to_list() == [sum(way["dropped"].values()) for way in ways]
    flows = results.to_polars("flows")
    assert flows["goodput_bps"].to_list() == [
        bps for record in records for bps in record["flows_bps"]
    ]
    keys = ["loss", "rtt", "variant", "repetition"]
    for name in Records.tables():
        columns = results.to_polars(name).columns
        assert [one for one in columns if one in keys] == keys, name


def test_a_table_that_there_is_not(results):
    with pytest.raises(ValueError, match="runs, flows, transfers"):
        results.table("run")


def test_units_are_in_the_schema(results):
    schema = results.to_arrow().schema
    assert schema.field("goodput_bps").type == pyarrow.float64()
    assert schema.field("goodput_bps").metadata == {b"unit": b"bit/s"}
    assert dict(results.table("legs").units)["rtt_us"] == "us"


def test_arrow_takes_no_copy(results):
    table = results.table()
    # Two readers of the same table see the same memory.
    first, second = (pyarrow.table(table)["goodput_bps"].chunk(0) for _ in range(2))
    address = first.buffers()[1].address
    assert address == second.buffers()[1].address
    frame = polars.DataFrame(table)
    assert frame["goodput_bps"].to_numpy(allow_copy=False).ctypes.data == address


def test_pandas(results):
    frame = results.to_pandas()
    assert frame.groupby("variant")["goodput_bps"].median()["midspan"] > 0


def test_transfers():
    from conftest import UPLOAD

    transfer = {"kind": "transfer", "direction": "download", "size": "100 KB", "count": 3}
    scenario = midspan.Scenario({**UPLOAD, "workload": transfer})
    results = midspan.run(scenario, repetitions=1)
    transfers = results.to_polars("transfers")
    assert transfers.height == 3 * len(results)
    assert (transfers["received_s"] > transfers["connected_s"]).all()
    assert results.to_polars()["goodput_bps"].null_count() == len(results)


def test_lines_are_medians_over_the_axis(results):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = plot.lines(results, "loss")
    assert axes.get_xlabel() == "loss, %"
    assert axes.get_ylabel() == "goodput, Mbit/s"
    names = [line.get_label() for line in axes.get_lines()]
    assert "Midspan, rtt 22 ms" in names and len(names) == 4
    frame = results.to_polars().filter(variant="none", loss="1 %", rtt="22 ms")
    drawn = dict(zip(names, axes.get_lines(), strict=True))["no proxy, rtt 22 ms"]
    assert drawn.get_ydata()[1] == pytest.approx(frame["goodput_bps"].median() / 1e6)
    assert results.plot("rtt").get_xlabel() == "rtt, ms"
    assert plot.cdf(results, "rtt_us", "legs").get_xlabel() == "rtt, ms"
    with pytest.raises(ValueError, match="there is loss, rtt"):
        plot.lines(results, "los")
