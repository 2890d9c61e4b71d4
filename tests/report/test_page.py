"""The form of the report's page and pictures: what a reader, a screen reader or a browser without a network relies on.
SPDX-License-Identifier: MIT"""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from document import Document
from samples import VERSION, all_samples, compare, explain, machine, write_samples

from conftest import ROOT, make_page
from report.__main__ import main
from report.page import machine_file
from report.read import read_files

SECTIONS = ("share", "speedup", "roofline", "accuracy", "cost", "memory", "support", "results", "libraries", "machines")


@pytest.fixture(scope="module", params=["full", "bare"])
def text(request):
    return (request.getfixturevalue(request.param) / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def full_page(full):
    return Document((full / "index.html").read_text(encoding="utf-8"))


def by_id(page, name):
    return next(e for e in page.all() if e.attributes.get("id") == name)


def rows_of(page, name):
    body = next(by_id(page, name).all("tbody"))
    return [[cell.words() for cell in row.children] for row in body.all("tr")]


def test_every_element_is_closed_where_it_was_opened(text):
    assert Document(text).wrong == []


def test_nothing_is_fetched_from_elsewhere(text):
    page = Document(text)
    for element in page.all():
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            target = element.attributes.get(name, "")
            assert target.startswith(("#", "data:")) or not target, f"<{element.tag} {name}={target!r}>"
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r"(https?:)?//[a-z]|@import|url\((?!#)", re.sub(r"^\s*//.*$|; //.*$", "", outside, flags=re.M))


def test_ids_are_unique(text):
    ids = [e.attributes["id"] for e in Document(text).all() if "id" in e.attributes]
    assert sorted(ids) == sorted(set(ids))


def test_links_lead_somewhere(text):
    page = Document(text)
    ids = {e.attributes.get("id") for e in page.all()}
    links = [e.attributes["href"] for e in page.all("a")] + [e.attributes["href"] for e in page.all("use")]
    assert len(links) > len(SECTIONS)
    assert [link for link in links if link[1:] not in ids] == []


def test_the_contents_name_every_section_in_order(text):
    page = Document(text)
    listed = [e.attributes["href"][1:] for e in next(page.root.all("nav")).all("a")]
    assert listed == [e.attributes["id"] for e in page.all("section")]
    assert set(SECTIONS) < set(listed)


def test_every_table_has_a_caption_and_heads_that_sort(text):
    for table in Document(text).all("table"):
        assert next(table.all("caption")).words()
        heads = list(next(table.all("thead")).all("th"))
        assert all(head.attributes["scope"] == "col" and head.attributes["aria-sort"] == "none" for head in heads)
        assert all(next(head.all("button")).words() for head in heads)
        for row in next(table.all("tbody")).all("tr"):
            assert len(row.children) == len(heads), table.attributes["id"]


def test_every_picture_has_a_title_and_words_for_those_who_do_not_see_it(text):
    page = Document(text)
    for figure in page.all("figure"):
        assert next(next(figure.all("figcaption")).all("strong")).words()
    for svg in page.all("svg"):
        assert svg.attributes["role"] == "img" and len(svg.attributes["aria-label"]) > 20


def test_pictures_take_their_colours_from_the_page(text):
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.S):
        assert not re.search(r"#[0-9a-f]{6}\b", svg)


def test_a_section_without_results_says_what_makes_them(bare):
    page = Document((bare / "index.html").read_text(encoding="utf-8"))
    for name in set(SECTIONS) - {"machines"}:
        words = by_id(page, name).words()
        assert "Not measured yet" in words and ("evenkeel" in words or "compare.py" in words), name


def test_every_section_of_a_full_page_shows_something(full_page):
    for name in SECTIONS:
        section = by_id(full_page, name)
        assert "Not measured yet" not in section.words()
        assert any(section.all("table")) or any(section.all("svg")), name


def test_every_result_is_in_a_table(full_page):
    made = all_samples()
    rows = rows_of(full_page, "results-gpu") + rows_of(full_page, "results-cpu")
    bench = sum(1 + len(r["peers"]) for n in ("cpu", "h200") for r in made[n]["results"] + made[n]["cached"])
    assert len(rows) == bench + sum(len(made[n]["results"]) for n in ("compare-cpu", "compare-h200")) + 3


def test_quoted_rows_say_so_with_their_date(full_page):
    quoted = [row for row in rows_of(full_page, "results-gpu") if row[0] == "flash-attn"]
    assert quoted and all(row[-1].startswith("quoted, 2026-11-15") for row in quoted)
    assert "flash-attn (quoted)" in by_id(full_page, "figure-share-gpu").words()


def test_figures_that_are_quoted_stand_with_their_own_copy_and_date(full_page):
    rows = [row for row in rows_of(full_page, "results-gpu") if row[0] == "Transformer Engine"]
    assert [(row[4], row[6], row[8], row[-1]) for row in rows] == [
        ("4096", "40.00", "0.83", "quoted, 2026-10"),
        ("1024", "150.00", "0.85", "quoted, 2026-10"),
    ]
    assert any(row[0] == "Liger" and row[-1] == "failed; quoted: fails" for row in rows_of(full_page, "results-gpu"))


def test_what_a_comparison_quotes_has_the_date_of_the_figures_and_not_of_the_run(tmp_path):
    data = compare("cuda")
    for row in data["results"]:
        row["note"] = "quoted, 2025-03" * (row["status"] == "quoted")
    (tmp_path / "compare.json").write_text(json.dumps(data))
    page = Document(make_page(tmp_path / "out", [tmp_path / "compare.json"])[1])
    words = {
        row[-1].replace('; GPT <2> & "friends"', "") for row in rows_of(page, "results-gpu") if row[0] == "flash-attn"
    }
    assert words == {"quoted, 2025-03"}
    assert "(2025-03)" in by_id(page, "figure-share-gpu").words()


def test_a_library_that_is_quoted_at_some_widths_alone_says_so(tmp_path):
    data = compare("cuda")
    for row in data["results"]:
        if row["backend"] == "flash-attn" and row["cols"] == 4096:
            row["status"] = "ok"
    (tmp_path / "compare.json").write_text(json.dumps(data))
    page = Document(make_page(tmp_path / "out", [tmp_path / "compare.json"])[1])
    assert "flash-attn (partly quoted)" in by_id(page, "figure-share-gpu").words()


def test_the_list_of_files_says_how_quoted_figures_were_measured(full_page):
    (row,) = [row for row in rows_of(full_page, "files-table") if row[1] == "quoted"]
    assert row[2:] == ["–", "2026-10", "quoted, Sample GPU: by graphs"]


def test_peers_that_failed_are_shown_and_not_drawn(full_page):
    sad = [row for row in rows_of(full_page, "results-gpu") if row[0] == "Apex"]
    assert sorted(row[-1].split(";")[0] for row in sad) == ["failed", "took too long", "wrong values"]
    for name in ("figure-share-gpu", "figure-speedup-gpu"):
        assert "Apex" not in by_id(full_page, name).words()


def test_text_of_files_is_text_on_the_page(full_page):
    """Names come from others: angle brackets and quotes are no markup."""
    assert any('GPT <2> & "friends"' in row[-1] for row in rows_of(full_page, "results-gpu"))
    assert any("<no kernel image>" in row[-1] for row in rows_of(full_page, "results-gpu"))


def test_support_is_what_the_file_says(full_page):
    marks = {tuple(row[:3]): row[3:] for row in rows_of(full_page, "support-table")}
    assert marks["LayerNorm", "bf16", "f32"] == ["✓"] * 4
    assert marks["RMSNorm", "f64", "f64"] == ["✓", "✓", "✗ EK_ERROR_DTYPE", "✗ EK_ERROR_DTYPE"]


def test_costs_hold_numbers_and_symbols(full_page):
    row = next(row for row in rows_of(full_page, "cost-layer-norm-forward") if row[:2] == ["evenkeel", "norm"])
    assert row[2] == f"{8 * 4096 * 16384:,}8·B·S·H"


def caption_of(page, name):
    return next(by_id(page, name).all("caption")).words()


def test_costs_name_the_machine_of_their_limits(full_page):
    assert caption_of(full_page, "cost-layer-norm-forward").endswith("; limits of Sample GPU")


def asking_program(folder):
    """A program that answers every `explain` alike, and notes what it was asked."""
    (folder / "answer.json").write_text(json.dumps(explain("layer_norm", "forward", "f32")))
    path = folder / "program"
    path.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\ncat {folder}/answer.json\n')
    path.chmod(0o755)
    return path


def costs_with(folder, names):
    """The last row of the cost table, its caption, and what the program was asked first."""
    paths = write_samples(folder, names)
    command = [*map(str, paths), "--output", str(folder / "out"), "--program", str(asking_program(folder))]
    assert main(command) == 0
    page = Document((folder / "out" / "index.html").read_text(encoding="utf-8"))
    name = "cost-layer-norm-forward"
    return rows_of(page, name)[-1], caption_of(page, name), (folder / "asked").read_text().splitlines()[0]


def test_a_cpu_without_a_machine_file_has_costs_and_no_limits(tmp_path):
    row, caption, asked = costs_with(tmp_path, ["cpu"])
    assert f"--device cpu --machine {ROOT / 'docs/results/machine-cpu.json'}" in asked
    assert row[2].startswith(f"{8 * 4096 * 16384:,}") and row[-2:] == ["", "–"]
    assert caption.endswith("; no limits, for no machine was measured") and "Sample GPU" not in caption


def test_a_cpu_with_a_machine_file_has_its_limits(tmp_path):
    row, caption, asked = costs_with(tmp_path, ["cpu", "machine-cpu"])
    assert row[-2] == "memory" and row[-1] != "–" and "limits of" in caption
    assert f"--device cpu --machine {tmp_path / 'machine-cpu.json'}" in asked


def test_a_gpu_without_a_machine_file_has_the_limits_of_the_one_that_is_named(tmp_path):
    row, caption, asked = costs_with(tmp_path, ["h200"])
    assert row[-2] == "memory" and "limits of" in caption and "--device cuda --machine h200" in asked


def test_peak_memory_stands_beside_pytorchs(full_page):
    row = next(row for row in rows_of(full_page, "memory-table") if row[0] == "evenkeel")
    peak, torch = 32768 * 4096 * 12, 32768 * 4096 * 12 + (1 << 20)
    assert row[5:8] == [f"{peak / 1e6:.2f}", "536.87", f"{peak / torch:.2f}"]


def test_a_share_in_the_table_is_the_one_of_the_file(full_page):
    record = all_samples()["h200"]["results"][0]
    seconds = f"{record['seconds'] * 1e6:.2f}"
    row = next(r for r in rows_of(full_page, "results-gpu") if r[0] == "evenkeel" and r[6] == seconds and r[3] == "f32")
    assert (row[4], row[5], row[8]) == ("32768", "256", f"{record['of_copy']:.2f}")


def test_a_cpu_measured_beside_a_gpu_is_called_a_cpu(tmp_path):
    """The machine of such a file names the GPU of its host; its device says what was measured."""
    data = compare("cpu")
    data["machine"] |= {"gpu": "Sample GPU", "device": "cpu"}
    (tmp_path / "compare.json").write_text(json.dumps(data))
    page = Document(make_page(tmp_path / "out", [tmp_path / "compare.json"])[1])
    assert {row[-1] for row in rows_of(page, "differences")} == {"CPU"}
    panels = [title.words() for title in by_id(page, "figure-accuracy").all("h3")]
    assert panels == ["LayerNorm, f32, CPU", "RMSNorm, f32, CPU"]
    assert [row[0] for row in rows_of(page, "machines-table")] == ["Sample CPU"]


def test_limits_of_a_cpu_measured_beside_a_gpu_are_the_cpus(tmp_path):
    data = machine("cpu")
    data["machine"] |= {"gpu": "Sample GPU", "device": "cpu"}
    (tmp_path / "machine.json").write_text(json.dumps(data))
    reading = read_files([tmp_path / "machine.json"], VERSION, tmp_path)
    assert machine_file(reading, "gpu") is None and machine_file(reading, "cpu") is reading.sources[0]
    page = Document(make_page(tmp_path / "out", [tmp_path / "machine.json"])[1])
    assert {row[0] for row in rows_of(page, "peaks-table")} == {"Sample CPU"}
    assert "--device" not in rows_of(page, "files-table")[0][-1]


def test_pictures_are_files_too_on_both_grounds(full):
    names = {path.name for path in full.iterdir()}
    for name in ("share-gpu", "share-cpu", "speedup-gpu", "speedup-cpu", "roofline", "accuracy", "copy"):
        assert {f"{name}.svg", f"{name}-dark.svg", f"{name}.png"} <= names
    for path in full.glob("*.svg"):
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.get("viewBox") and root.get("aria-label")
        assert "var(--" not in path.read_text(encoding="utf-8")


def test_the_same_files_give_the_same_bytes(tmp_path):
    """In other processes too, where sets have another order."""
    paths = write_samples(tmp_path, ["compare-cpu", "machine-cpu", "explain-layer_norm-forward-bf16"])
    made = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        command = [sys.executable, "-m", "report", *map(str, paths), "--output", str(folder), "--program", "none"]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "tools")}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert len(made[0]) > 10
    assert [name for name in made[0] if made[0][name] != made[1].get(name)] == []
