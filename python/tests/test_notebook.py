"""The example is executed, cell by cell, as a reader would."""

import nbformat
import pytest
from conftest import ROOT

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")


def test_the_example_does_what_it_says():
    path = ROOT / "python" / "examples" / "mec.ipynb"
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    said = "".join(one.get("text", "") for some in outputs for one in some)
    assert "Midspan" in said
    assert "unknown key `tme`" in said
    pictures = [one for some in outputs for one in some if "image/png" in one.get("data", {})]
    assert len(pictures) == 2
