"""Sweeps on Ray. Clusters are of this machine, and end with their tests."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import midspan

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'midspan[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402

import midspan.ray  # noqa: E402

#: One core for each node, and no more memory than the objects of these tests take.
NODE = {
    "num_cpus": 1,
    "object_store_memory": 100_000_000,
}


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster of two nodes with a core each, and the one that is not its head."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {**NODE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args=head)
    other = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, other
    ray.shutdown()
    cluster.shutdown()


def longer(upload):
    """Some hundred runs of a tenth of a second or so."""
    return upload.changed({"workload.time": "4 s", "path.access.up.0.rate.rate": "100 Mbit/s"})


def test_a_cluster_of_this_machine_takes_no_setting(upload, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    class Lossy(midspan.Element):
        def packet(self, now, packet):
            return midspan.Drop() if self.random.random() < 0.01 else midspan.Pass(0.001)

    mapping = upload.to_dict()
    del mapping["sweep"]
    mapping["path"]["access"]["up"] = [{"external": {"name": "lossy"}}]
    mapping["path"]["access"]["down"] = []

    class Fixed(midspan.CongestionControl):
        owns_window = True

        def on_ack(self, ack):
            self.cwnd = 20 + self.random.random()

        def on_loss(self):
            pass

    mapping["hosts"] = {"ue": {"congestion_control": "external:fixed"}}
    keywords = {"elements": {"lossy": Lossy}, "controls": {"fixed": Fixed}, "repetitions": 4}

    def cut(progress):
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        midspan.ray.run(mapping, **keywords, out=tmp_path, progress=cut)
    assert not ray.is_initialized()
    told = []
    results = midspan.ray.run(mapping, **keywords, out=tmp_path, progress=told.append)
    assert [progress.done for progress in told] == [4, 5, 6, 7, 8]
    local = midspan.run(mapping, **keywords)
    assert results.to_jsonl() == local.to_jsonl()


def test_it_is_a_program_as_well(upload, tmp_path):
    file, out = tmp_path / "upload.toml", tmp_path / "results"
    file.write_text(upload.to_toml())
    program = [sys.executable, "-m", "midspan.ray"]
    command = [*program, "local", file, "--out", out, "--variant", "midspan", "--only", "loss=1 %"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert folder.parent == out
    local = midspan.run(upload, variants=["midspan"], only={"loss": "1 %"})
    assert (folder / "records.jsonl").read_text() == local.to_jsonl()
    assert f"{len(local)}/{len(local)} loss 1 %, " in done.stderr
    nobody = subprocess.run(
        [*program, "local", tmp_path / "missing", "--out", out], capture_output=True, text=True
    )
    assert nobody.returncode == 1
    assert "missing" in nobody.stderr and "Traceback" not in nobody.stderr


def test_both_nodes_work(upload, two_nodes, tmp_path):
    class WhereItRuns(midspan.Element):
        """Leaves a file with the name of its node."""

        def __init__(self, *, seed, folder):
            super().__init__(seed=seed)
            (Path(folder) / ray.get_runtime_context().get_node_id()).touch()

        def packet(self, now, packet):
            return midspan.Pass(after=0.001)

    where = {"external": {"name": "where", "with": {"folder": str(tmp_path)}}}
    mapping = upload.to_dict()
    del mapping["sweep"]
    mapping["path"]["access"] = {"up": [{"rate": {"rate": "20 Mbit/s"}}, where], "down": []}
    results = midspan.ray.run(mapping, elements={"where": WhereItRuns}, repetitions=100)
    assert len(results) == 200
    assert len(list(tmp_path.iterdir())) == 2


def alive():
    return len([node for node in ray.nodes() if node["Alive"]])


def test_a_node_that_is_killed_takes_nothing_along(upload, two_nodes, tmp_path):
    cluster, other = two_nodes
    scenario, told, nodes = longer(upload), [], []

    def kill_in_the_middle(progress):
        told.append(progress)
        if progress.done == 24:
            nodes.append(alive())
            cluster.remove_node(other, allow_graceful=False)

    results = midspan.ray.run(scenario, repetitions=20, out=tmp_path, progress=kill_in_the_middle)
    # On a busy machine Ray counts it among the living for a while.
    deadline = time.monotonic() + 60
    while alive() > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    nodes.append(alive())
    assert nodes == [2, 1]
    assert [progress.done for progress in told] == list(range(1, 161))
    local = midspan.run(scenario, repetitions=20)
    assert results.digest == local.digest
    assert (results.directory / "records.jsonl").read_text() == local.to_jsonl()
