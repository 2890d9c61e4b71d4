"""Tests of count.py without a GPU: tables as ncu writes them (ncu-raw.csv, ncu-details.csv), and stand-ins for ncu and
for the program. Prints `ok NAME` or `FAILED NAME`. SPDX-License-Identifier: MIT"""

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

CASE = count.Case("layer_norm", "backward", "bf16", 32768, 4096)
# x, dy, weight, three statistics and 64 partial sums; dx, 64 partial sums and two gradients
READ, WRITTEN = 2 * 268435456 + 8192 + 3 * 131072, 268435456 + 2097152
FOLDED = (2097152, 16384)


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
    assert count.bytes_of("3", "sector") == 96
    assert count.bytes_of("2", "Ksector") == 64000
    raises("no unit", count.bytes_of, "1", "percent")
    raises("no number", count.bytes_of, "n/a", "byte")


def the_raw_page_is_read():
    kernels = count.read_csv((HERE / "ncu-raw.csv").read_text())
    assert [kernel.name for kernel in kernels] == [
        "ek_layer_norm_backward_bf16_4096",
        "ek_layer_norm_backward_final_bf16_4096",
    ]
    assert kernels[0].bytes == {
        count.READ: 537272320,
        count.WRITTEN: 237040640,
        count.ASKED: 32 * 16813056,
        count.SENT: 32 * 8454144,
    }


def the_details_page_is_read():
    (kernel,) = count.read_csv((HERE / "ncu-details.csv").read_text())
    assert kernel.name == "ek_layer_norm_forward_bf16_4096"
    assert kernel.bytes[count.READ] == 268510000 and kernel.bytes[count.SENT] == 32 * 8400896


def a_table_that_is_not_there_is_said():
    raises("no table", count.read_csv, "layer_norm forward\n")
    raises("ERR_NVGPUCTRPERM", count.read_csv, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    lines = (HERE / "ncu-raw.csv").read_text().replace("dram__bytes_read.sum", "dram__bytes.sum")
    raises("has no dram__bytes_read.sum", count.read_csv, lines)


def row(read=1.0, sent=1.0, written=1.0):
    model = {"name": ["one"], "read_bytes": [10**9], "write_bytes": [2 * 10**9]}
    counted = {count.READ: read * 1e9, count.SENT: sent * 2e9, count.WRITTEN: written * 2e9, count.ASKED: 3e9}
    return count.row_of(CASE, model, [count.Kernel("one", counted)])


def what_is_off_by_more_than_a_twentieth_differs():
    assert row().complaints() == []
    assert row(read=1.049, sent=0.951, written=1.049).complaints() == []
    assert row(read=1.051).complaints() == ["read"]
    assert row(read=0.94).complaints() == ["read"]
    assert row(sent=2).complaints() == ["sent to the L2"]
    assert row(written=1.06).complaints() == ["written"]


def what_an_l2_holds_may_be_missing_of_what_is_written():
    assert row(written=1 - 60e6 / 2e9).complaints() == []
    assert row(written=1 - 300e6 / 2e9).complaints() == ["written"]


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
            "import shutil, sys\n"
            f"shutil.copy({str(HERE / 'ncu-raw.csv')!r}, sys.argv[sys.argv.index('--log-file') + 1])\n",
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
