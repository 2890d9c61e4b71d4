"""Times faster: the ratio of shares of a copy, both of one run. SPDX-License-Identifier: MIT"""

import json

import pytest
from samples import write_samples

from report.duels import duels
from report.read import read_files
from report.rows import Row, all_rows, select


def row(source, backend, of_copy, status="ok", isa="", rows=2048):
    cell = {"device": "gpu", "op": "layer_norm", "direction": "forward", "dtype": "bf16", "rows": rows, "cols": 4096}
    return Row(source, backend=backend, status=status, seconds=1e-5, of_copy=of_copy, isa=isa, **cell)


def test_each_library_is_held_against_ours_of_its_own_run():
    found = duels([
        row("bench", "evenkeel", 0.9, isa="sm_90"), row("bench", "onednn", 0.6), row("large", "evenkeel", 0.8),
        row("large", "pytorch", 0.4), row("large", "onednn", 0.5), row("small", "evenkeel", 0.6),
        row("small", "liger", 0.5), row("large", "quack", 0.2),
    ])  # fmt: skip
    (duel,) = found
    assert {pair.peer.backend: (pair.ours.source, pair.times) for pair in duel.pairs} == {
        "onednn": ("bench", pytest.approx(1.5)),  # evenkeel bench comes first
        "pytorch": ("large", pytest.approx(2.0)),
        "quack": ("large", pytest.approx(4.0)),
        "liger": ("small", pytest.approx(1.2)),
    }
    assert duel.best.peer.backend == "liger" and duel.torch.times == pytest.approx(2.0)


def test_what_is_quoted_is_held_against_a_comparison_and_else_against_the_bench():
    quoted = row("quotes", "apex", 0.3, "quoted")
    bench = row("bench", "evenkeel", 0.9, isa="sm_90")
    assert duels([bench, quoted])[0].best.times == pytest.approx(3.0)
    (duel,) = duels([bench, row("compare", "evenkeel", 0.6), quoted])
    assert duel.best.times == pytest.approx(2.0) and duel.best.quoted


def test_no_peer_and_no_evenkeel_make_no_duel():
    others = [row("compare", "pytorch", 0.4, rows=8), row("quotes", "apex", 0.3, "quoted", rows=8)]
    assert duels([row("bench", "evenkeel", 0.9), row("bench", "evenkeel-dlpack", 0.9), *others]) == []


def test_cells_come_in_the_order_of_their_bytes(tmp_path):
    reading = read_files(write_samples(tmp_path, ["h200", "compare-h200"]), "0.1.0", tmp_path)
    found = duels(select(all_rows(reading), "gpu", "layer_norm", "bf16", "forward"))
    sizes = [duel.ours.bytes for duel in found]
    assert len(sizes) == 7 and sizes == sorted(sizes)


def test_the_bytes_of_a_fused_op_are_those_its_file_says(tmp_path):
    paths = write_samples(tmp_path, ["compare-h200"])
    data = json.loads(paths[0].read_text())
    plain = data["results"][0]
    data["results"].append({**plain, "op": "add_rms_norm", "bias": 0, "bytes": 2 * plain["bytes"]})
    paths[0].write_text(json.dumps(data))
    rows = all_rows(read_files(paths, "0.1.0", tmp_path))
    assert rows[-1].bytes == 2 * rows[0].bytes and rows[-1].affine
