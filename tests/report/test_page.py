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

pytestmark = pytest.mark.slow  # each makes the page again

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


def page_of(folder, data, *names):
    """The page of a file with this data, and of the samples of these names."""
    (folder / "data.json").write_text(json.dumps(data))
    return Document(make_page(folder / "out", [folder / "data.json", *write_samples(folder, names)])[1])


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
    page = page_of(tmp_path, data)
    words = {
        row[-1].replace('; GPT <2> & "friends"', "") for row in rows_of(page, "results-gpu") if row[0] == "flash-attn"
    }
    assert words == {"quoted, 2025-03"}
    assert "(2025-03)" in by_id(page, "figure-share-gpu").words()


def quote_at_some_widths(data, backend):
    """As one that ran at 4096 columns and wider, and is quoted at the others."""
    for row in data["results"]:
        if row["backend"] == "flash-attn":
            row |= {"backend": backend, "note": "quoted, 2026-10"}
            if row["cols"] >= 4096 and backend == "flash-attn":
                row |= {"status": "ok", "note": ""}
    return data


def test_a_line_is_measured_or_quoted_and_never_both(tmp_path):
    page = page_of(tmp_path, quote_at_some_widths(compare("cuda"), "flash-attn"))
    keys = [key.words() for key in next(by_id(page, "figure-share-gpu").all("ul")).all("li")]
    assert "flash-attn" in keys and not any("quoted" in key for key in keys)
    drawn = {t.words() for t in by_id(page, "figure-share-gpu").all("title") if t.words().startswith("flash-attn")}
    assert len(drawn) >= 3 and not any("(quoted" in words for words in drawn)
    assert any(row[0] == "flash-attn" and row[-1] == "quoted, 2026-10" for row in rows_of(page, "results-gpu"))


def test_another_setting_of_a_library_is_not_quoted_beside_it(tmp_path):
    """torch.compile was measured; max-autotune is quoted."""
    page = page_of(tmp_path, quote_at_some_widths(compare("cuda"), "compile-max"))
    assert "max-autotune" not in by_id(page, "figure-share-gpu").words()
    assert "in its default form" not in by_id(page, "figure-share-gpu").words()  # nothing quoted, nothing to say of it
    assert any(row[0] == "torch.compile (max-autotune)" for row in rows_of(page, "results-gpu"))


def test_figures_that_two_files_quote_stand_once(tmp_path):
    """bench/quoted.json, and the comparison that took a figure from there."""
    data = compare("cuda")
    row = next(r for r in data["results"] if (r["pass"], r["dtype"], r["cols"]) == ("forward", "bf16", 8192))
    data["results"].append(
        row | {"backend": "te", "status": "quoted", "note": "quoted, 2026-10", "seconds": 4e-5, "of_copy": 33.1 / 40}
    )
    page = page_of(tmp_path, data, "quoted")
    rows = [row for row in rows_of(page, "results-gpu") if row[0] == "Transformer Engine" and row[5] == "8192"]
    assert [(row[6], row[-1]) for row in rows] == [("40.00", "quoted, 2026-10")]


def test_every_result_names_its_file(full_page):
    rows = [row for row in rows_of(full_page, "results-gpu") if row[:6] == ["evenkeel", "LayerNorm", "forward", "bf16",
            "2048", "4096"]]  # fmt: skip
    assert [row[-2].rpartition("/")[2] for row in rows] == ["h200.json", "compare-h200.json"]
    assert "file" in [head.words() for head in by_id(full_page, "results-cpu").all("th")]


def test_a_bar_is_the_ratio_of_shares(tmp_path):
    """Of one run: times of another hour, with a copy as slow, change nothing."""
    data = compare("cuda")
    for row in data["results"]:
        row["seconds"] = row["seconds"] and row["seconds"] * (3 if row["backend"] == "flash-attn" else 1)
    page = page_of(tmp_path, data)
    bars = {title.words() for title in by_id(page, "figure-speedup-gpu").all("title")}
    assert "2048 × 4096: 1.15× flash-attn (quoted, 2026-11-15)" in bars
    assert "1.15× flash-attn, quoted" in by_id(page, "figure-speedup-gpu").words()


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


def test_every_name_in_a_formula_is_explained(tmp_path):
    data = explain("layer_norm", "backward", "bf16")
    ours = data["variants"][-1]
    ours["kernels"][0]["symbols"]["flops"] = "2*hidden_size*slots + chunk_bytes"
    ours["symbols"] = [
        {"name": "hidden_size", "value": 16384, "origin": "input.shape[2]"},
        {"name": "slots", "value": 128, "origin": "slots of rows <rule 6>"},
        {"name": "chunk_bytes", "value": 64, "origin": "what a thread takes"},
    ]
    page = page_of(tmp_path, data)
    assert any("2·H·slots + chunk_bytes" in row[2] for row in rows_of(page, "cost-layer-norm-backward"))
    section = by_id(page, "cost")
    assert [term.words() for term in section.all("dt")] == ["slots = 128", "chunk_bytes = 64"]
    assert [text.words() for text in section.all("dd")] == ["slots of rows <rule 6>", "what a thread takes"]
    assert "least" not in next(section.all("p")).words()  # of the reference it is the most


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


def block_answer(order):
    """`evenkeel explain block --json` with two kernels."""
    work = {"flops": 4_000_000, "read_bytes": 2_000_000, "write_bytes": 2_000_000, "roofline_seconds": 1e-6}
    kernels = [{"name": "q_proj", "type": "product", "bound": "compute", **work},
               {"name": "rope/forward", "type": "fused", "bound": "memory", **work}]  # fmt: skip
    total = {key: 2 * work[key] for key in work}
    return {"evenkeel": VERSION, "op": "block", "pass": "step", "dtype": "bf16", "order": order,
            "sizes": {"batch_size": 4, "seq_len": 8, "given": False}, "machine": {"name": "Sample GPU"},
            "corrections": [{"wrong": "8 launches", "right": "12 launches"}],
            "variants": [{"name": "evenkeel", "kernels": kernels, "total": total}]}  # fmt: skip


def test_a_block_has_its_launches_and_kernels(tmp_path):
    paths = []
    for order in ("reordered", "pre"):
        paths.append(tmp_path / f"explain-block-{order}.json")
        paths[-1].write_text(json.dumps(block_answer(order)))
    assert main([*map(str, paths), "--output", str(tmp_path / "out"), "--program", str(tmp_path / "none")]) == 0
    page = Document((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
    for order in ("reordered", "pre"):
        assert rows_of(page, f"block-{order}-launches") == [["evenkeel", "2", "1", "0", "1", "2.0", "1.0"]]
        kernels = rows_of(page, f"block-{order}-kernels")
        assert [row[1:3] + row[-3:] for row in kernels] == [
            ["q_proj", "product", "1.00", "compute", "1.00"], ["rope/forward", "fused", "1.00", "memory", "1.00"]
        ]  # fmt: skip
    assert rows_of(page, "block-corrections") == [["8 launches", "12 launches"]]


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
    page = page_of(tmp_path, data)
    assert {row[-1] for row in rows_of(page, "differences")} == {"CPU"}
    panels = [title.words() for title in by_id(page, "figure-accuracy").all("h3")]
    assert panels == ["LayerNorm, f32, CPU", "RMSNorm, f32, CPU"]
    assert [row[0] for row in rows_of(page, "machines-table")] == ["Sample CPU"]


def test_limits_of_a_cpu_measured_beside_a_gpu_are_the_cpus(tmp_path):
    data = machine("cpu")
    data["machine"] |= {"gpu": "Sample GPU", "device": "cpu"}
    page = page_of(tmp_path, data)
    reading = read_files([tmp_path / "data.json"], VERSION, tmp_path)
    assert machine_file(reading, "gpu") is None and machine_file(reading, "cpu") is reading.sources[0]
    assert {row[0] for row in rows_of(page, "peaks-table")} == {"Sample CPU"}
    assert "--device" not in rows_of(page, "files-table")[0][-1]


def test_the_limit_is_the_largest_copy_and_not_one_of_a_cache(tmp_path):
    data = machine("cpu")
    slope = max(data["copy"], key=lambda record: (record["bytes"], record["bytes_per_second"]))
    data["copy"].insert(0, {"bytes": 65536, "bytes_per_second": 9e11, "threads": 2})
    page = page_of(tmp_path, data, "cpu", "explain-layer_norm-forward-f32")
    assert rows_of(page, "peaks-table")[0] == ["Sample CPU", "copy of 512 MB, 2 threads", "40 GB/s"]
    assert slope["bytes_per_second"] == 4e10
    assert "the slope is the measured copy of 512 MB, 40 GB/s" in by_id(page, "figure-roofline").words()


def test_a_folder_that_cannot_be_written_gets_a_line(tmp_path, capsys):
    paths = write_samples(tmp_path, ["machine-cpu"])
    assert main([*map(str, paths), "--output", "/dev/null/x", "--program", "none"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "report: --output /dev/null/x: it cannot be written: Not a directory"


def test_a_program_that_is_not_there_is_named_with_what_is_lacking(tmp_path, capsys):
    make_page(tmp_path / "out", write_samples(tmp_path, ["cpu"]))
    none = tmp_path / "out" / "none"
    line = f"{none} cannot be run, and so the page has no costs and no support: make build makes it"
    assert f"report: {line}" in capsys.readouterr().err.splitlines()
    assert line in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    make_page(tmp_path / "all", write_samples(tmp_path, ["cpu", "info-h200", "explain-layer_norm-forward-f32"]))
    assert capsys.readouterr().err == ""


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
