"""Bad results files: each gets a line that names it and says what is wrong, and the rest goes on.
SPDX-License-Identifier: MIT"""

import copy
import functools
import json
import math
import random
import re

import pytest
from samples import VERSION, all_samples, bench, compare, explain, machine, quoted, write_samples

from conftest import make_page
from report import page
from report.read import read_files
from report.rows import all_rows


def read(tmp_path, content, version=VERSION):
    """What is made of one file: a text, or data that is written as JSON."""
    path = tmp_path / "x.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_files([path], version, tmp_path)


@pytest.mark.parametrize("name", all_samples())
def test_good_files_are_taken_whole(tmp_path, name):
    data = all_samples()[name]
    reading = read(tmp_path, data)
    assert reading.problems == [] and reading.remarks == []
    kept = reading.sources[0].data
    assert {key: kept[key] for key in data} == data


WHOLE = {
    "empty": ("", r"it is empty"),
    "blank": (" \n", r"it is empty"),
    "not JSON": ("rows,cols\n1,2\n", r"it is not JSON \(line 1, column 1: Expecting value\)"),
    "not text": (b"\xff\xfe\x00", r"it is not text in UTF-8"),
    "nested without end": ("[" * 100000, r"it is (nested too deeply|cut short)"),
    "a list": ([1, 2], r"it is none of the files of evenkeel bench"),
    "another program's": ({"benchmarks": []}, r"it is none of the files of evenkeel bench"),
    "results that are no list": ({**bench("cpu"), "results": {}}, r"it has results \{\}, which must be a list"),
    "no version": ({k: v for k, v in bench("cpu").items() if k != "evenkeel"}, r"it lacks evenkeel"),
    "a version that is none": ({**bench("cpu"), "evenkeel": "new"}, r'evenkeel is "new", which is no version'),
    "a newer version": ({**bench("cpu"), "evenkeel": "9.0.0"}, r"it is of evenkeel 9\.0\.0, newer than 0\.1\.0"),
    "another format": ({**compare("cpu"), "format": 2}, r"its format is 2, and this reader knows 1"),
    "no machine": ({**machine("cpu"), "machine": None}, r"it has machine null, which must be an object"),
    "no sizes": (
        {**explain("layer_norm", "forward", "f32"), "sizes": 3},
        r"it has sizes 3, which must be whole numbers by name",
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_file_that_cannot_be_used_is_named_and_left_out(tmp_path, case):
    content, words = WHOLE[case]
    reading = read(tmp_path, content)
    assert reading.sources == []
    (line,) = reading.problems
    assert re.match(rf"x\.json: {words}", line) and line.endswith(": the file is left out")


def test_a_file_that_is_cut_short_says_where(tmp_path):
    text = json.dumps(bench("cpu"), indent=1)
    for length in (10, len(text) // 2, len(text) - 2):
        (line,) = read(tmp_path, text[:length].rstrip("}] \n,")).problems
        assert re.search(r"(cut short|not JSON) \(line \d+, column \d+", line)


def test_a_file_that_is_not_there_is_named(tmp_path):
    reading = read_files([tmp_path / "gone.json", tmp_path], VERSION, tmp_path)
    assert reading.problems[0] == "gone.json: it cannot be read: No such file or directory: the file is left out"
    assert "Is a directory" in reading.problems[1]


ROWS = {
    "NaN": ("results", {"seconds": math.nan}, "has seconds NaN, which must be a number above 0"),
    "beyond measure": ("results", {"of_copy": 1e300}, "has of_copy 1e+300, which must be a number above 0"),
    "infinite": ("results", {"of_copy": math.inf}, "has of_copy Infinity, which must be a number above 0"),
    "zero time": ("results", {"seconds": 0}, "has seconds 0, which must be a number above 0"),
    "a text for a number": ("results", {"rows": "8"}, 'has rows "8", which must be a whole number above 0'),
    "true for a number": ("results", {"cols": True}, "has cols true, which must be a whole number above 0"),
    "half a row": ("results", {"rows": 1.5}, "has rows 1.5, which must be a whole number above 0"),
    "an unknown pass": (
        "results",
        {"pass": "sideways"},
        'has pass "sideways", which must be forward, backward or both',
    ),
    "a missing field": ("results", {"seconds": ...}, "lacks seconds"),
    "a peer's time": ("results", {"peers": {"onednn": -1}}, 'has peers {"onednn": -1}, which must be times above 0'),
    "in the caches": ("cached", {"seconds": None}, "has seconds null, which must be a number above 0"),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_row_that_cannot_be_used_is_left_out_alone(tmp_path, case):
    part, change, words = ROWS[case]
    data = bench("cpu")
    row = data[part][0] | change
    data[part][0] = {key: value for key, value in row.items() if value is not ...}
    reading = read(tmp_path, data)
    (line,) = reading.problems
    assert line.startswith(f"x.json: {part}[0] {words}") and line.endswith(": the row is left out")
    assert reading.sources[0].data[part] == data[part][1:]


def test_a_row_that_was_timed_has_a_time(tmp_path):
    data = compare("cuda")
    data["results"][3] |= {"seconds": None}
    (line,) = read(tmp_path, data).problems
    assert line == "x.json: results[3] has seconds null, which must be a number above 0: the row is left out"


def test_many_bad_rows_are_counted_and_not_all_told(tmp_path):
    data = bench("cpu")
    for row in data["results"][:10]:
        row["seconds"] = None
    reading = read(tmp_path, data)
    assert len(reading.problems) == 4
    assert reading.problems[-1] == "x.json: 7 more rows of results are left out"


def test_a_bad_kernel_of_a_cost_leaves_its_variant_out(tmp_path):
    data = explain("layer_norm", "forward", "f32")
    data["variants"][0]["kernels"][1]["flops"] = math.nan
    reading = read(tmp_path, data)
    assert "variants[0] kernels: one has flops NaN" in reading.problems[0]
    assert [v["name"] for v in reading.sources[0].data["variants"]] == ["pytorch", "evenkeel"]


QUOTES = {
    "a shape that is none": ({"microseconds": {"2048": [1, 2, 3]}}, "has microseconds "),
    "a copy without a time": ({"microseconds": {"8x8": [None, 2, 3]}}, "has microseconds "),
    "a time of zero": ({"microseconds": {"8x8": [1, 0, 3]}}, "has microseconds "),
    "a figure too few": (
        {"microseconds": {"8x8": [1, 2]}},
        "has 2 figures at 8x8: a copy's and 2 more are needed",
    ),
    "a library that is no text": ({"backends": ["liger", 3]}, 'has backends ["liger", 3], which must be a list of '),
}


@pytest.mark.parametrize("case", QUOTES)
def test_a_bad_table_of_quoted_figures_is_left_out_alone(tmp_path, case):
    change, words = QUOTES[case]
    data = quoted()
    data["tables"].append(data["tables"][0] | change)
    reading = read(tmp_path, data)
    (line,) = reading.problems
    assert line.startswith(f"x.json: tables[1] {words}") and line.endswith(": the row is left out")
    assert len(all_rows(reading)) == 3


def test_a_file_of_an_older_version_is_used_and_said_to_be(tmp_path):
    reading = read(tmp_path, bench("cpu"), version="0.2.0")
    assert reading.problems == [] and len(reading.sources) == 1
    assert reading.remarks == ["x.json: measured with evenkeel 0.1.0, and this is 0.2.0"]


def test_the_page_holds_the_rest_and_the_status_is_1(tmp_path, capfd):
    paths = write_samples(tmp_path, ["machine-cpu"])
    bad = tmp_path / "bad.json"
    bad.write_text('{"evenkeel": "0.1.0", "results"')
    status, text = make_page(tmp_path / "out", [*paths, bad])
    assert status == 1
    line = f"{bad}: it is cut short (line 1, column 32: Expecting ':' delimiter): the file is left out"
    assert f"report: {line}" in capfd.readouterr().err.splitlines()
    assert line.replace("'", "&#x27;") in text
    assert "Sample CPU" in text


JUNK = (None, True, 0, -1, math.inf, math.nan, "x", "", [], {}, [1], 1e300, 1.5, "layer_norm")


def places(data, path=()):
    """Where values stand in a file, of long lists the first rows."""
    items = data.items() if isinstance(data, dict) else list(enumerate(data))[:3] if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def test_whatever_is_damaged_a_page_is_made(tmp_path, monkeypatch):
    """Values replaced by junk all over the files: each is used or named, and nothing stumbles over it later."""
    monkeypatch.setattr(page, "inline", lambda figure: [""] * len(figure.panels))  # drawing takes long
    rng = random.Random(1)
    samples = all_samples()
    chosen = {name: samples[name] for name in ("cpu", "compare-cpu", "machine-cpu", "info-h200", "quoted")}
    chosen["explain"] = samples["explain-layer_norm-forward-bf16"]
    for _ in range(60):
        data = copy.deepcopy(chosen)
        for name in data:
            *way, last = rng.choice(list(places(data[name])))
            functools.reduce(lambda part, key: part[key], way, data[name])[last] = rng.choice(JUNK)
            (tmp_path / f"{name}.json").write_text(json.dumps(data[name]))
        reading = read_files(sorted(tmp_path.glob("*.json")), VERSION, tmp_path)
        assert "</html>" in page.page(reading, page.figures(reading), VERSION)


def test_no_file_at_all_makes_a_page_that_says_what_to_run(tmp_path):
    status, text = make_page(tmp_path / "out", [tmp_path / "none.json"])
    assert status == 1
    assert text.count("Not measured yet") >= 9
