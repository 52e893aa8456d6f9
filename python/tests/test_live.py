"""Live runs, by the program."""

import subprocess

import pytest

import midspan


@pytest.fixture
def capable(program):
    """The program, where it may make networks."""
    doctor = subprocess.run(
        [program, "lab", "shell", "--rtt", "10ms", "--", "true"], capture_output=True, check=False
    )
    if doctor.returncode != 0:
        pytest.skip("this machine makes no network namespaces: see `midspan doctor`")
    return program


def test_a_live_run_has_records_of_the_kernel(upload, capable, tmp_path):
    part = {"variants": ["none"], "only": {"loss": "0 %", "rtt": "22 ms"}}
    results = midspan.run(upload, "live", repetitions=1, **part, out=tmp_path, program=capable)
    (record,) = results.records()
    assert record["backend"] == "live" and record["started_unix_ms"] > 0
    # A machine that is busy may fall behind its links: then there is no number, but a reason.
    assert record["outcome"] == "measured" or "reason" in record
    assert midspan.Results.read(results.directory).to_jsonl() == results.to_jsonl()
    simulated = midspan.run(upload, repetitions=1, **part)
    assert simulated.records()[0]["seed"] == record["seed"]


def test_what_live_runs_cannot_is_said(upload, capable, tmp_path):
    # What another sweep left there is not taken for an answer.
    midspan.run(upload, repetitions=1, out=tmp_path)
    with pytest.raises(RuntimeError, match="only simulated"):
        video = {"kind": "video", "rate": "512 kbit/s", "duration": "1 s"}
        midspan.run(upload.changed({"workload": video}), "live", out=tmp_path, program=capable)
    with pytest.raises(ValueError, match="only simulated"):
        midspan.run(upload, "live", elements={"mine": object}, program=capable)
    with pytest.raises(ValueError, match="sim or live"):
        midspan.run(upload, "lab")


def test_a_program_that_is_not_there_is_named(upload):
    with pytest.raises(FileNotFoundError, match="`/none/midspan`"):
        midspan.run(upload, "live", program="/none/midspan")
