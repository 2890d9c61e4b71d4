"""Tests of count.py without a GPU: a table that ncu wrote on an H200 (ncu.csv, most of its columns left out), and
stand-ins for ncu and for the program. Prints `ok NAME` or `FAILED NAME`. SPDX-License-Identifier: MIT"""

import contextlib
import io
import os
import sys
import tempfile
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import count  # noqa: E402

CASE = count.Case("layer_norm", "backward", "bf16", 131072, 4096)
# x, dy, weight, three statistics of a row; dx and the partial sums of 128 blocks; then these are folded
TENSOR, SUMS = 131072 * 4096 * 2, 128 * 2 * 4096 * 4
READ, WRITTEN = 2 * TENSOR + 4096 * 2 + 3 * 131072 * 4, TENSOR + SUMS
FOLDED = (SUMS, 2 * 4096 * 2)


def raises(text, function, *arguments):
    try:
        function(*arguments)
    except count.Unreadable as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing is said of {text}")


def values_of_every_unit_are_bytes():
    assert count.bytes_of("1,234,567", "byte") == 1234567
    assert count.bytes_of("1.5", "Kbyte") == 1500
    assert count.bytes_of("268.51", "Mbyte") == 268510000
    assert count.bytes_of("0.23", "Gbyte") == 230000000
    raises("no unit", count.bytes_of, "1", "percent")
    raises("no number", count.bytes_of, "n/a", "byte")


def a_table_of_ncu_is_read():
    rows, fold = count.read_csv((HERE / "ncu.csv").read_text())
    assert rows.name == "ek_layer_norm_backward_bf16_4096"
    assert rows.bytes == {count.READ: 2150103296, count.WRITTEN: 1060974592}
    assert fold.name == "ek_columns_final_bf16_4096"


def a_table_that_is_not_there_is_said():
    raises("no table", count.read_csv, "layer_norm forward\n")
    raises("ERR_NVGPUCTRPERM", count.read_csv, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    lines = (HERE / "ncu.csv").read_text().replace("dram__bytes_read.sum", "dram__bytes.sum")
    raises("has no dram__bytes_read.sum", count.read_csv, lines)


def row(read=1.0, written=1.0):
    model = {"name": ["one"], "read_bytes": [10**9], "write_bytes": [2 * 10**9]}
    counted = {count.READ: read * 1e9, count.WRITTEN: written * 2e9}
    return count.row_of(CASE, model, [count.Kernel("one", counted)])


def what_is_off_by_more_than_a_twentieth_differs():
    assert row().complaints() == []
    assert row(read=1.049, written=0.951).complaints() == []
    assert row(read=1.051).complaints() == ["read"]
    assert row(read=0.94).complaints() == ["read"]
    assert row(written=1.06).complaints() == ["written"]
    assert row(read=2, written=0.9).complaints() == ["read", "written"]


def another_number_of_kernels_is_said():
    model = {"name": ["one", "two"], "read_bytes": [1, 1], "write_bytes": [1, 1]}
    raises("2 kernels in the model, 1 counted: other", count.row_of, CASE, model, [count.Kernel("other", {})])


def script(folder, name, text):
    path = Path(folder) / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


def run_on_stand_ins(read):
    """The exit status and the table of a whole run; the model reads `read` bytes."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = [
            {"name": "rows", "read_bytes": read, "write_bytes": WRITTEN},
            {"name": "fold", "read_bytes": FOLDED[0], "write_bytes": FOLDED[1]},
        ]
        cost = {"variants": [{"name": "evenkeel", "kernels": kernels}]}
        program = script(folder, "evenkeel", f"import json\nprint(json.dumps({cost!r}))")
        ncu = script(
            folder,
            "ncu",
            f"import shutil, sys\nshutil.copy({str(HERE / 'ncu.csv')!r}, sys.argv[sys.argv.index('--log-file') + 1])\n",
        )
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            wrong = count.count_all(program, ncu, [CASE], Path(folder))
        return wrong, said.getvalue()


def a_run_compares_and_counts():
    wrong, table = run_on_stand_ins(READ)
    assert wrong == 0 and "1 of 1 within 5%" in table and table.splitlines()[1].endswith("ok"), table


def a_run_that_reads_twice_fails():
    wrong, table = run_on_stand_ins(READ // 2)
    assert wrong == 1 and "DIFFERS: read" in table, table


def a_program_that_fails_is_said():
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        program = script(folder, "evenkeel", "import sys\nsys.exit('evenkeel: no GPU')")
        assert count.count_all(program, "ncu", [CASE], Path(folder)) == 1
    assert "NOT COUNTED: evenkeel ended with status 1: evenkeel: no GPU" in said.getvalue(), said.getvalue()


def an_ncu_that_fails_is_said():
    with tempfile.TemporaryDirectory() as folder:
        ncu = script(
            folder,
            "ncu",
            "import sys\n"
            "with open(sys.argv[sys.argv.index('--log-file') + 1], 'w') as log:\n"
            "    print('==PROF== Connected', '==ERROR== Failed to find metric x', sep='\\n', file=log)\n"
            "sys.exit(9)\n",
        )
        raises("ncu ended with status 9: ==ERROR== Failed to find metric x", count.count, "", ncu, CASE, Path(folder))


def main():
    tests = [
        test
        for name, test in globals().items()
        if callable(test)
        and getattr(test, "__module__", "") == "__main__"
        and name not in ("main", "raises", "row", "script", "run_on_stand_ins")
    ]
    failed = 0
    for test in tests:
        try:
            test()
            print("ok", test.__name__)
        except Exception:  # noqa: BLE001 - a test may fail in any way
            failed += 1
            print("FAILED", test.__name__)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
