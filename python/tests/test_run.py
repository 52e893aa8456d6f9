"""Simulated runs, and their records."""

import json
import subprocess
import threading
import time

import pytest

import midspan


@pytest.mark.parametrize("file", ["mec/3a.toml", "tcp-me/9.toml", "web/page-2011.toml"])
def test_records_are_byte_for_byte_the_programs(scenarios, program, tmp_path, file):
    path = scenarios / file
    command = [
        program,
        "lab",
        "run",
        str(path),
        "--backend",
        "sim",
        "--out",
        str(tmp_path),
        "--short",
    ]
    subprocess.run(command, check=False, capture_output=True)
    (folder,) = tmp_path.iterdir()
    theirs = (folder / "records.jsonl").read_bytes()
    ours = midspan.run(path, short=True)
    assert theirs
    assert ours.to_jsonl().encode() == theirs
    read = midspan.Results.read(folder)
    assert read.digest == ours.digest
    assert read.summary() == ours.summary()


def test_the_same_again(upload):
    first, again = midspan.run(upload), midspan.run(upload)
    assert len(first) == 16
    assert first.to_jsonl() == again.to_jsonl()
    other = midspan.run(upload, seed=8)
    assert first.digest != other.digest


def test_a_part(upload):
    part = midspan.run(upload, repetitions=1, variants=["none"], only={"loss": "1 %"})
    assert len(part) == 2
    assert {record["cell"]["loss"] for record in part.records()} == {"1 %"}
    with pytest.raises(ValueError, match="no point `2 %`"):
        midspan.run(upload, only={"loss": "2 %"})
    with pytest.raises(ValueError, match="haproxy"):
        midspan.run(upload, variants=["haproxy"])


def test_progress_and_other_threads_go_on(upload):
    told, ticks, over = [], [], threading.Event()

    def tick():
        while not over.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    midspan.run(upload, progress=told.append)
    over.set()
    thread.join()
    assert [progress.done for progress in told] == list(range(1, 17))
    assert told[-1].total == 16 and told[-1].record["variant"] in ("none", "midspan")
    assert len(ticks) > 5


def test_what_is_called_may_end_it(upload):
    def enough(progress):
        if progress.done == 3:
            raise StopIteration("enough")

    with pytest.raises(StopIteration, match="enough"):
        midspan.run(upload, progress=enough)


def test_a_sweep_that_was_cut_goes_on(upload, tmp_path):
    def cut(progress):
        if progress.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        midspan.run(upload, out=tmp_path, progress=cut)
    (folder,) = tmp_path.iterdir()
    assert len((folder / "records.jsonl").read_text().splitlines()) == 5
    told = []
    results = midspan.run(upload, out=tmp_path, progress=told.append)
    assert [progress.done for progress in told] == list(range(6, 17))
    assert results.directory == folder
    assert (folder / "records.jsonl").read_text() == midspan.run(upload).to_jsonl()
    assert "Uploads over a lossy radio link" in (folder / "report.html").read_text()


def test_the_program_reports_on_the_folder(upload, program, tmp_path):
    results = midspan.run(upload, out=tmp_path)
    report = [program, "lab", "report", str(results.directory)]
    done = subprocess.run(report, capture_output=True, text=True, check=True)
    assert results.summary().strip() in done.stdout


def test_a_trace_that_is_not_there_is_named(upload, tmp_path):
    trace = {"trace": {"file": "none.down.gz"}}
    scenario = upload.changed({"path.access.down.0": trace})
    with pytest.raises(FileNotFoundError, match=r"none\.down\.gz"):
        midspan.run(scenario)


def test_failed_runs_are_records(upload):
    scenario = upload.sweep({"loss": ["100 %"], "rtt": [{"label": "22 ms", "access": "1 ms"}]})
    results = midspan.run(scenario, repetitions=1)
    assert [record["outcome"] for record in results.records()] == ["failed", "failed"]
    (reason, _) = results.to_polars()["reason"].to_list()
    assert reason == json.loads(results.to_jsonl().splitlines()[0])["reason"]


def test_packets_and_what_senders_do_are_kept(upload, tmp_path):
    packets, events = tmp_path / "packets", tmp_path / "events"
    only = {"loss": "0 %", "rtt": upload.axes["rtt"][0]}
    results = midspan.run(upload, repetitions=1, only=only, captures=packets, qlog=events)
    runs = len(results.to_polars())
    for folder, ending in [(packets, "*.pcapng"), (events, "*.sqlog")]:
        assert len(list(folder.glob("*/*"))) == runs
        files = list(folder.glob(f"*/*/{ending}"))
        assert files and all(file.stat().st_size > 1000 for file in files)
    with pytest.raises(ValueError, match="qlog: what the kernel's TCP does is not told"):
        midspan.run(upload, "live", qlog=events)
    assert midspan.run(upload, repetitions=1, only=only).to_jsonl() == results.to_jsonl()
