"""The tables that the report keeps in README.md and docs/performance.md: they hold what the kept results say.
SPDX-License-Identifier: MIT"""

import json
import shutil

import pytest
from samples import write_samples

from conftest import ROOT
from report.__main__ import kept_files, main, version_of
from report.documents import fill, fill_tables
from report.read import read_files

DOCUMENTS = ("README.md", "docs/performance.md", "include/evenkeel.h", "bench/quoted.json")


@pytest.fixture
def tree(tmp_path):
    """A copy of what the report reads and fills."""
    for name in DOCUMENTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "docs" / "results", ignore=shutil.ignore_patterns("*.html"))
    return tmp_path


def filled(tree):
    """The tables of the tree's results; what was wrong with them."""
    reading = read_files(kept_files(tree), version_of(tree), tree)
    fill_tables(tree, reading)
    return reading.problems


def test_the_documents_are_what_make_report_makes_of_the_results(tree):
    assert filled(tree) == []
    for name in DOCUMENTS:
        assert (tree / name).read_text() == (ROOT / name).read_text(), f"{name}: run make report"


def test_another_result_is_another_table(tree):
    path = tree / "docs" / "results" / "cpu.json"
    data = json.loads(path.read_text())
    cell = next(r for r in data["results"] if (r["rows"], r["cols"], r["dtype"]) == (512, 768, "f32"))
    cell["of_copy"] = 0.12
    path.write_text(json.dumps(data))
    filled(tree)
    assert "| 512 × 768 | **0.12** · " in (tree / "README.md").read_text()
    assert "| **0.12** | 0.90 (short) |" in (tree / "docs" / "performance.md").read_text()


def test_the_best_peer_says_where_it_is_quoted(tree):
    path = tree / "bench" / "quoted.json"
    data = json.loads(path.read_text())
    data["tables"][0]["microseconds"]["4096x8192"][1] = 0.5  # PyTorch's, faster than all
    path.write_text(json.dumps(data))
    filled(tree)
    assert "| 0.5 (PyTorch, quoted 2026-10) |" in (tree / "docs" / "performance.md").read_text()


def test_a_bad_file_costs_the_documents_nothing(tree):
    (tree / "docs" / "results" / "mine.json").write_text("{")
    (line,) = filled(tree)
    assert line.startswith("docs/results/mine.json: it is cut short")
    assert (tree / "README.md").read_text() == (ROOT / "README.md").read_text()


def test_without_named_files_the_documents_are_filled(tree):
    for path in (tree / "docs" / "results").iterdir():
        path.unlink()
    write_samples(tree / "docs" / "results", ["h200"])
    assert main(["--root", str(tree), "--program", "none"]) == 0
    assert "Measured on Sample GPU" in (tree / "docs" / "performance.md").read_text()
    assert (tree / "build" / "report" / "index.html").exists()
    assert (tree / "docs" / "share-gpu.svg").exists() and (tree / "docs" / "share-gpu-dark.svg").exists()


def test_named_files_leave_the_documents_alone(tree):
    before = {name: (tree / name).read_bytes() for name in DOCUMENTS}
    paths = write_samples(tree, ["machine-cpu"])
    assert main(["--root", str(tree), "--program", "none", "--output", str(tree / "out"), *map(str, paths)]) == 0
    assert {name: (tree / name).read_bytes() for name in DOCUMENTS} == before
    assert (tree / "out" / "index.html").exists()


def test_a_document_without_its_markers_is_named(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("<!-- gpu:end -->\n<!-- gpu:begin -->\n")
    with pytest.raises(
        ValueError, match=r"README\.md must hold <!-- gpu:begin --> and then <!-- gpu:end -->, each once"
    ):
        fill(path, [], "gpu")
