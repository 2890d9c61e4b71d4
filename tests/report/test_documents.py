"""The tables that the report keeps in README.md and docs/performance.md: they hold what the kept results say.
SPDX-License-Identifier: MIT"""

import json
import re
import shutil

import pytest
from samples import quoted, write_samples

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
    table = data["tables"][0]
    table["microseconds"]["4096x8192"][1 + table["backends"].index("apex")] = 0.5  # faster than all
    path.write_text(json.dumps(data))
    filled(tree)
    assert "| 0.5 (Apex, quoted 2026-10) |" in (tree / "docs" / "performance.md").read_text()


def samples_in(tree, *names):
    """The tree with these samples for results."""
    for path in (tree / "docs" / "results").iterdir():
        path.unlink()
    (tree / "bench" / "quoted.json").write_text(json.dumps(quoted()))
    write_samples(tree / "docs" / "results", names)
    return tree / "docs" / "results"


def times_in_readme(tree):
    """The column of forward's times by shape."""
    table = (tree / "README.md").read_text().partition("<!-- gpu:begin -->")[2].partition("<!-- gpu:end -->")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    return {cells[0]: cells[2] for cells in lines}


def test_times_the_best_peer_is_the_ratio_of_shares_within_one_run(tree):
    """A run in a slower hour, where the copy is slower too, says the same of the libraries."""
    results = samples_in(tree, "h200", "compare-h200")
    assert filled(tree) == []
    before = times_in_readme(tree)
    assert before["2048 × 4096"] == before["8192 × 1024"] == "1.15"  # flash-attn's in the samples
    path = results / "compare-h200.json"
    data = json.loads(path.read_text())
    for row in data["results"]:
        row["seconds"] = row["seconds"] and row["seconds"] * 3
    path.write_text(json.dumps(data))
    filled(tree)
    assert times_in_readme(tree) == before


def test_the_readme_says_which_libraries_ran_where_and_which_are_quoted(tree):
    path = samples_in(tree, "h200", "compare-h200") / "compare-h200.json"
    data = json.loads(path.read_text())
    for row in data["results"]:
        if row["backend"] == "quack":
            row["weight_dtype"] = "f32"
        if row["backend"] == "liger" and (row["cols"], row["pass"]) != (4096, "forward"):
            row["status"] = "timeout"
        if row["status"] == "quoted":
            row["note"] = "quoted, 2025-03"
    path.write_text(json.dumps(data))
    filled(tree)
    text = (tree / "README.md").read_text()
    assert (
        "A library counts where it ran, in so many of the 10 cells: PyTorch 10, torch.compile 10, Liger 1, quack 10 "
        "(weights in f32). Quoted from runs of their own (2025-03, 2026-10): flash-attn 10, Transformer Engine 1 "
        "(weights in f32). All"
    ) in text


def test_a_bad_file_leaves_the_documents_as_they_are(tree, capsys):
    """Without it the tables would be others, and nobody would see that."""
    path = samples_in(tree, "h200", "compare-h200") / "compare-h200.json"
    path.write_text(path.read_text()[:20000])
    names = [*DOCUMENTS, "docs/share-gpu.svg"]
    (tree / "docs" / "share-gpu.svg").write_text("as it was")
    before = {name: (tree / name).read_bytes() for name in names}
    assert main(["--root", str(tree), "--program", "none"]) == 1
    assert {name: (tree / name).read_bytes() for name in names} == before
    assert (tree / "build" / "report" / "index.html").exists()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("report: docs/results/compare-h200.json: it is cut short")
    assert lines[-1].startswith("report: README.md, docs/performance.md and their pictures are left as they are")


def test_the_pictures_of_the_readme_show_what_their_words_say():
    """Not how many libraries there are: that changes with the results."""
    text = (ROOT / "README.md").read_text()
    words = re.findall(r'<img src="docs/share-[^"]*" alt="([^"]*)"', text)
    assert len(words) == 2 and not re.search(r"\b(two|three|four|five|six|seven|eight|nine|ten|\d+)\b", "".join(words))


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
