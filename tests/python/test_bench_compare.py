"""bench/compare.py: what it measures, writes and refuses, and backends that hang, crash or are wrong. On a GPU where
$EVENKEEL_TEST_DEVICE is cuda. No time is asserted. SPDX-License-Identifier: MIT"""

import csv
import importlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from torch.autograd import DeviceType

import evenkeel

pytestmark = pytest.mark.slow

BENCH = pathlib.Path(__file__).parents[2] / "bench"
DEVICE = os.environ.get("EVENKEEL_TEST_DEVICE", "cpu")
SMALL = ["--device", DEVICE, "--shapes", "37x96", "--dtypes", "f32", "--quick", "--threads", "1"]
MEASURED = ["evenkeel", "evenkeel-dlpack", "pytorch", "onednn"]

# Backends of a user's own, each PyTorch's with something the matter.
BACKEND = """
from comparison.backends.pytorch import PyTorch

class Backend(PyTorch):
    install = "pip install {name}"

    def {method}:
        {fault}
"""
# In the case that is timed; what comes before and after it is right.
CRASH = """import os, signal
        if len(case.passes) == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().call(case, given)"""
CALL, STEP = "call(self, case, given)", "step(self, case, given, gradients)"
LOAD = "load(self, device, threads)"
FAULTS = {
    "wrong": (CALL, "return [output * 1.01 for output in super().call(case, given)]"),
    "crash": (CALL, CRASH),
    "hang": (CALL, "import time\n        time.sleep(600)"),
    "refusal": (STEP, "raise RuntimeError('no kernel for this width')"),
    "versioned": (LOAD, "return (1, 2)"),
    "absent": (LOAD, "import a_library_that_is_not_there"),
    "broken": (LOAD, "raise RuntimeError('needs a newer compiler')"),
}
# A worker that closes its pipe well before it ends, as a large library does.
SLOW_TO_END = """
import os, sys, time

os.close(1)
time.sleep(0.5)
sys.exit("no memory for the workspace")
"""

sys.path.append(str(BENCH))

from comparison import accuracy, plan, runner, tables  # noqa: E402
from comparison.backends import BACKENDS  # noqa: E402
from comparison.backends.base import Operands  # noqa: E402
from comparison.backends.evenkeel import Evenkeel  # noqa: E402
from comparison.backends.pytorch import Compiled, PyTorch  # noqa: E402
from comparison.case import Case  # noqa: E402
from comparison.ops import FUSED, OPS  # noqa: E402
from comparison.quoted import Quoted  # noqa: E402
from comparison.results import Results  # noqa: E402
from comparison.shapes import Shape  # noqa: E402
from comparison.timing import Loop, passes_for, union_length  # noqa: E402
from comparison.yardstick import Yardstick, compile_copy  # noqa: E402


def compare(*arguments, cwd=None):
    command = [sys.executable, str(BENCH / "compare.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def backend_file(folder, name):
    path = folder / f"{name}.py"
    path.write_text(BACKEND.format(name=name, method=FAULTS[name][0], fault=FAULTS[name][1]))
    return path


def kept_by(folder, *arguments):
    """What a run writes into a file, and the run."""
    path = folder / "compare.json"
    done = compare(*SMALL, *arguments, "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run of evenkeel and two peers, with backends that fail in the midst of them: (folder, results, text)."""
    folder = tmp_path_factory.mktemp("compare")
    extra = [part for name in FAULTS if name != "hang" for part in ("--extra", backend_file(folder, name))]
    files = ["--csv", folder / "times.csv", "--output-dir", folder / "out"]
    kept, done = kept_by(folder, "--ops", "layer_norm", "--backends", ",".join(MEASURED), *extra, *files)
    return folder, kept, done.stdout


@pytest.fixture
def kept(run):
    return run[1]


@pytest.fixture(params=MEASURED)
def backend(request, kept):
    """One that is measured, if it is installed."""
    if status(kept, request.param)["status"] == "missing":
        pytest.skip(status(kept, request.param)["note"])
    return request.param


def rows(kept, backend, part="results"):
    return [row for row in kept[part] if row["backend"] == backend]


def status(kept, backend):
    (found,) = [entry for entry in kept["backends"] if entry["name"] == backend]
    return found


def test_the_head_says_what_was_run_where(kept):
    assert (kept["kind"], kept["format"], kept["evenkeel"]) == ("compare", 1, evenkeel.__version__)
    assert kept["command"].startswith(f"python bench/compare.py --device {DEVICE} --shapes 37x96")
    assert kept["machine"]["torch"] == torch.__version__ and kept["machine"]["threads"] == 1
    assert kept["machine"]["device"] == DEVICE and kept["machine"]["cpu"]


def test_every_pass_is_measured_beside_a_copy(kept, backend):
    assert status(kept, backend)["status"] == "run" and status(kept, backend)["version"]
    found = rows(kept, backend)
    assert [row["pass"] for row in found] == ["forward", "backward", "both"]
    tensor = 37 * 96 * 4
    assert [row["bytes"] for row in found] == [2 * tensor, 3 * tensor, 5 * tensor]
    for row in found:
        assert row["status"] == "ok" and (row["rows"], row["cols"], row["dtype"]) == (37, 96, "f32")
        assert (row["weight"], row["bias"], row["set"], row["device"]) == (1, 1, "models", DEVICE)
        assert row["seconds"] > 0 and row["of_copy"] == pytest.approx(row["copy_seconds"] / row["seconds"], rel=1e-5)
        assert (row["host_seconds"] or 0) > 0 if DEVICE == "cuda" else row["host_seconds"] is None


def test_values_are_held_against_float64(kept, backend):
    (found,) = rows(kept, backend, "accuracy")
    for part in ("out", "mean", "rstd", "dx", "dweight", "dbias"):
        assert 0 < found[part] < 1e-4, part
    errors = {row["offset"]: row["error"] for row in rows(kept, backend, "offsets")}
    assert list(errors) == [0, 1, 10, 100, 1e3, 1e4, 1e5] and errors[0] < 1e-5


def test_evenkeel_is_as_exact_far_from_zero_as_near_it(kept):
    errors = [row["error"] for row in rows(kept, "evenkeel", "offsets")]
    assert max(errors) < 3 * errors[0]


def test_memory_is_that_of_the_results_and_little_more(kept):
    if not kept["memory"]:
        pytest.skip("the kernel does not tell this process its resident memory")
    for backend, statistics in (("evenkeel", 3), ("pytorch", 2)):
        (found,) = rows(kept, backend, "memory")
        assert found["saved_bytes"] == statistics * 37 * 4
        assert 0 <= found["peak_bytes"] < 2 << 20


def test_a_backend_that_is_wrong_is_not_timed(kept):
    found = rows(kept, "wrong")
    assert [row["status"] for row in found] == ["wrong"] * 3 and not any(row["seconds"] for row in found)
    assert found[0]["note"].startswith("out is ") and "from float64" in found[0]["note"]
    assert rows(kept, "wrong", "accuracy")[0]["out"] > 1e-3
    assert status(kept, "wrong")["status"] == "wrong"
    assert status(kept, "wrong")["note"] == f"wrong in 3 of 3 results: {found[0]['note']}"


def test_a_backend_that_crashes_costs_its_own_rows(kept):
    found = rows(kept, "crash")
    assert [row["status"] for row in found] == ["failed"] * 3
    assert {row["note"] for row in found} == {"ended by SIGSEGV"}
    assert status(kept, "crash")["status"] == "failed" and status(kept, "crash")["version"]
    assert len(rows(kept, "crash", "offsets")) == 7  # what went before is kept
    assert len(rows(kept, "crash", "memory")) == len(rows(kept, "pytorch", "memory"))  # and the rest is done


def test_a_backend_that_is_not_installed_says_how(run):
    _, kept, text = run
    assert status(kept, "absent")["status"] == "missing"
    assert "pip install absent" in status(kept, "absent")["note"] and "pip install absent" in text
    assert rows(kept, "absent") == []


def test_a_backend_that_does_not_load_says_why(kept):
    assert status(kept, "broken")["status"] == "failed"
    assert status(kept, "broken")["note"] == "does not load: RuntimeError: needs a newer compiler; pip install broken"


def test_a_version_that_is_no_text_is_shown_as_one(run):
    _, kept, text = run
    assert status(kept, "versioned")["version"] == "(1, 2)"
    assert re.search(r"^ +versioned +\(1, 2\) +run", text, re.M)


# Before any other way to find evenkeel, also that of an installation from its sources.
FINDER = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {module!r}) if name == "evenkeel" else None

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("raise RuntimeError('no such instruction')", "RuntimeError: no such instruction"),
        ("import os; os._exit(7)", ""),
    ],
)
def test_an_evenkeel_that_does_not_load_costs_its_own_rows(tmp_path, monkeypatch, module, why):
    (tmp_path / "broken.py").write_text(module)
    (tmp_path / "sitecustomize.py").write_text(FINDER.format(module=str(tmp_path / "broken.py")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    kept, _ = kept_by(tmp_path, "--ops", "rms_norm", "--pass", "forward", "--backends", "evenkeel,pytorch")
    assert kept["evenkeel"] is None and [row["status"] for row in rows(kept, "pytorch")] == ["ok"]
    assert status(kept, "evenkeel")["status"] == "failed" and why in status(kept, "evenkeel")["note"]


def test_the_reason_of_a_worker_that_is_slow_to_end_is_its_own(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text(SLOW_TO_END)
    monkeypatch.setattr(runner, "WORKER", tmp_path / "worker.py")
    lost = []
    end = runner.run({"units": [{}]}, 60, print, lambda unit, end: lost.append((unit, end.why)))
    assert end == runner.End("failed", "no memory for the workspace", 0)
    assert lost == [(0, "no memory for the workspace")]


def test_a_worker_that_writes_what_is_no_text_fails_alone(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text("import os, sys\nos.write(2, b'\\xff\\xfe went wrong\\n')\nsys.exit(1)\n")
    monkeypatch.setattr(runner, "WORKER", tmp_path / "worker.py")
    end = runner.run({"units": [{}]}, 60, print, lambda unit, end: None)
    assert end.how == "failed" and end.why.endswith(" went wrong")


def test_the_files_hold_the_same(run):
    folder, kept, _ = run
    assert json.loads((folder / "out" / "compare.json").read_text()) == kept
    for path, part in [(folder / "times.csv", "results")] + [
        (folder / "out" / f"{part}.csv", part) for part in ("backends", "results", "accuracy", "offsets", "memory")
    ]:
        with open(path, newline="") as file:
            written = list(csv.DictReader(file))
        expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in kept[part]]
        assert written == expected, path


def test_the_tables_name_every_backend(run):
    _, _, text = run
    assert "layer_norm forward + backward, f32, weight and bias" in text
    forward = text.partition("layer_norm forward, f32")[2].partition("\n\n")[0]
    assert [line.split()[1] for line in forward.splitlines()[2:]][:3] == MEASURED[:3]
    assert "failed: ended by SIGSEGV" in forward and "wrong: out is" in forward


def test_a_pass_that_fails_says_why_and_costs_itself_alone(kept):
    assert [(row["pass"], row["status"], row["note"]) for row in rows(kept, "refusal")] == [
        ("forward", "ok", ""),
        ("backward", "ok", ""),
        ("both", "failed", "RuntimeError: no kernel for this width"),
    ]
    assert status(kept, "refusal")["status"] == "run"


def test_a_backend_that_hangs_is_ended_and_the_rest_goes_on(tmp_path):
    arguments = ["--extra", backend_file(tmp_path, "hang"), "--extra", backend_file(tmp_path, "absent")]
    other = {"cpu": "liger", "cuda": "onednn"}[DEVICE]  # one for the other device
    kept, _ = kept_by(tmp_path, "--backends", other, *arguments, "--time-limit", 4, "--pass", "forward")
    assert {row["op"]: row["status"] for row in rows(kept, "hang")} == {"layer_norm": "timeout", "rms_norm": "timeout"}
    assert rows(kept, "hang")[0]["note"] == status(kept, "hang")["note"] == "not done within its 4 s"
    assert [entry["name"] for entry in kept["backends"]] == [other, "hang", "absent"]
    assert status(kept, other)["note"] == f"does not run on {DEVICE}"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--backends", "pytorch,nothing"], "argument --backends: 'nothing' is none of evenkeel, pytorch, liger,"),
        (["--ops", "batch_norm"], "argument --ops: 'batch_norm' is none of layer_norm, rms_norm"),
        (["--dtypes", "f8"], "argument --dtypes: 'f8' is none of f32, f16, bf16, f64"),
        (["--pass", "sideways"], "argument --pass: 'sideways' is none of forward, backward, both"),
        (["--sets", "huge"], "argument --sets: 'huge' is none of models, backward, tables, widths"),
        (["--shapes", "12"], "argument --shapes: '12' is no shape: ROWSxCOLS, both from 1 on, as 2048x4096"),
        (["--shapes", "2x3,0x5"], "argument --shapes: '0x5' is no shape"),
        (["--shapes", "99999999999999x2"], "argument --shapes: '99999999999999x2' is too large: at most 16777216 col"),
        (["--threads", "0"], "argument --threads: '0' is no number from 1 on"),
        (["--time-limit", "soon"], "argument --time-limit: 'soon' is no number from 1 on"),
        (["--budget", "nan"], "argument --budget: 'nan' is no number from 1 on"),
        (["--json", "nowhere/at/all.json"], "argument --json: 'nowhere/at/all.json' cannot be written"),
        (["--extra", "nothing.py"], "argument --extra: 'nothing.py' is no Python file"),
        (["--device", "tpu"], "argument --device: invalid choice: 'tpu' (choose from"),
        (["--output-dir", "/dev/null/results"], "argument --output-dir: Not a directory: '/dev/null/results' must be"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--json", "-", "--csv", "-"], "--json - --csv -: only one of them can be standard output"),
        (["--extra", "pytorch.py"], "argument --extra: 'pytorch.py' would be called pytorch, as one of --backends is"),
        (["--extra", "a.py", "--extra", "b/a.py"], "argument --extra: two files are called a: their results"),
        (
            ["--sets", "backward", "--pass", "forward", "--backends", "evenkeel"],
            "argument --sets: nothing to measure: backward is layer_norm backward; asked for is "
            "--ops layer_norm,rms_norm --pass forward",
        ),
        (
            ["--sets", "tables", "--dtypes", "f64"],
            "argument --sets: nothing to measure: tables is layer_norm in f16, b",
        ),
        (["--ops", "rms_norm", "--sets", "tables,backward"], "argument --sets: nothing to measure: tables is layer_no"),
    ],
)
def test_a_bad_option_gets_one_line_and_status_2(arguments, complaint, tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("pytorch.py", "a.py", "b/a.py"):
        (tmp_path / name).touch()
    done = compare(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"compare.py: {complaint}") and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")
def test_a_gpu_that_is_not_there_gets_status_3():
    done = compare("--device", "cuda")
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr == "compare.py: --device cuda: there is no GPU that PyTorch can use; --device cpu is\n"


# ---- the check before the times ----


class Forgetful(PyTorch):
    """Returns all but one part."""

    def __init__(self, part):
        self.part = part

    def forward(self, case, given):
        done = super().forward(case, given)
        named = zip(case.spec.outputs, done.outputs, strict=True)
        return done._replace(outputs=tuple(None if name == self.part else output for name, output in named))

    def backward(self, case, gradients, done):
        if None in done.outputs:
            return Operands(None)
        found = super().backward(case, gradients, done)
        return found._replace(**{name: None for name in case.operands if f"d{name}" == self.part})


def complaint(backend, case):
    return accuracy.check(backend, case, accuracy.make(case, "cpu", case.dtype))[1]


@pytest.mark.parametrize("part", ["out", "dx", "dweight", "dbias"])
def test_what_is_not_returned_is_a_complaint(part):
    assert complaint(Forgetful(part), case(3, 8, "f32", passes=("forward", "backward"))) == f"{part} is not returned"


def test_no_gradient_is_asked_for_that_there_is_not():
    assert complaint(Forgetful("dx"), case(3, 8, "f32")) == ""  # forward alone
    without_bias = case(3, 8, "f32", bias=False, passes=("backward",))
    assert complaint(Forgetful("dbias"), without_bias) == ""
    assert complaint(Forgetful("out"), case(3, 8, "f32")) == "out is not returned"


class Fifth(PyTorch):
    """Its dweight is a fifth too large."""

    def backward(self, case, gradients, done):
        found = super().backward(case, gradients, done)
        return found._replace(weight=found.weight * 1.2)


class StrictFifth(Fifth):
    sums_in_16_bits_on_cpu = False


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_sums_of_columns_may_be_far_off_only_where_a_backend_says_so(dtype):
    wanted = case(16, 64, dtype, passes=("backward",))
    assert complaint(Fifth(), wanted) == ""
    assert complaint(StrictFifth(), wanted).startswith("dweight is ")
    assert complaint(Fifth(), case(16, 64, "f32", passes=("backward",))).startswith("dweight is ")


def test_only_pytorchs_own_norms_say_so():
    def says_so(place):
        module = importlib.import_module(f"comparison.backends.{place.module}")
        return getattr(module, place.attribute).sums_in_16_bits_on_cpu

    assert [name for name in BACKENDS if says_so(BACKENDS[name])] == ["pytorch", "compile", "compile-max"]


# ---- fused ops ----


def loaded(backend):
    backend.load("cpu", 1)
    return backend


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("op", FUSED)
@pytest.mark.parametrize("backend", [Evenkeel, PyTorch])
def test_a_fused_op_computes_its_composition_in_float64(backend, op, dtype):
    wanted = case(19, 48, dtype, op, passes=("forward", "backward"))
    found, complaint = accuracy.check(loaded(backend()), wanted, accuracy.make(wanted, "cpu", dtype))
    assert complaint == ""
    expected = {*OPS[op].outputs, *(f"d{name}" for name in wanted.operands)}
    assert {name for name, difference in found.items() if difference is not None} == expected


@pytest.mark.parametrize("op", FUSED)
def test_every_part_of_a_fused_op_must_be_returned(op):
    wanted = case(5, 8, "f32", op, passes=("both",))
    for part in (*OPS[op].outputs, *(f"d{name}" for name in wanted.operands)):
        assert complaint(Forgetful(part), wanted) == f"{part} is not returned"


class Unadded(PyTorch):
    """Takes no notice of one operand's values."""

    def __init__(self, name):
        self.name = name

    def call(self, case, given):
        return super().call(case, given._replace(**{self.name: getattr(given, self.name) * 0}))


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op in FUSED for name in Case(op, "f32", 5, 8, "layer" in op, (), "").operands[1:]],
)
def test_an_operand_that_is_left_out_is_a_complaint(op, name):
    assert "from float64" in complaint(Unadded(name), case(5, 8, "f32", op))


@pytest.mark.parametrize(("op", "forward", "backward"), [(op, *spec.tensors) for op, spec in OPS.items()])
def test_the_bytes_of_an_op_are_those_of_its_tensors(op, forward, backward):
    wanted, tensor = case(5, 8, "bf16", op), 5 * 8 * 2
    assert wanted.bytes("forward") == forward * tensor and wanted.bytes("backward") == backward * tensor
    assert wanted.bytes("both") == (forward + backward) * tensor


def test_compiled_compositions_do_not_run_out_of_recompilations():
    """One for every case; beyond eight of one function, PyTorch would run it eagerly."""
    backend = loaded(Compiled())
    for cols in range(8, 18):
        wanted = case(3, cols, "f32", "add_layer_norm", passes=("backward",))
        found, complaint = accuracy.check(backend, wanted, accuracy.make(wanted, "cpu", "f32"))
        assert complaint == "" and found["dresidual"] is not None
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1  # counted from the last reset
        torch._dynamo.utils.counters.clear()


@pytest.fixture(scope="module")
def fused_run(tmp_path_factory):
    """A run of fused ops: (results, text)."""
    ops = ",".join(("add_layer_norm", "rms_norm_gated"))
    folder = tmp_path_factory.mktemp("fused")
    kept, done = kept_by(folder, "--ops", ops, "--backends", "evenkeel,pytorch", "--pass", "forward,backward")
    return kept, done.stdout


@pytest.mark.parametrize("backend", ["evenkeel", "pytorch"])
def test_fused_ops_have_rows_of_their_own(fused_run, backend):
    kept, _ = fused_run
    tensor = 37 * 96 * 4
    assert [(row["op"], row["pass"], row["status"], row["bytes"] // tensor) for row in rows(kept, backend)] == [
        ("add_layer_norm", "forward", "ok", 4),
        ("add_layer_norm", "backward", "ok", 4),
        ("rms_norm_gated", "forward", "ok", 3),
        ("rms_norm_gated", "backward", "ok", 5),
    ]
    assert {row["op"]: (row["h"] is None, row["dgate"] is None) for row in rows(kept, backend, "accuracy")} == {
        "add_layer_norm": (False, True),
        "rms_norm_gated": (True, False),
    }


def test_the_table_of_values_has_the_parts_of_the_op(fused_run):
    _, text = fused_run
    heads = {op: text.partition(f"{op} f32: the largest difference")[2].splitlines()[1].split() for op in FUSED[:1]}
    assert heads["add_layer_norm"][2:] == ["out", "h", "dx", "dweight", "dbias", "dresidual"]


def fused_row(op, backend, what, shape, share, status="ok"):
    made = Case(op, "bf16", *shape, "layer" in op, (what,), "fused").row(backend, what, "cuda", "bf16", status)
    return {**made, "of_copy": share}


def test_shares_of_fused_ops_are_one_table_too():
    results = Results("0", "", "", {"device": "cuda", "gpu": "a GPU", "torch": "2"})
    results.results = [
        fused_row("add_rms_norm", "evenkeel", "forward", (8192, 1024), 0.95),
        fused_row("add_rms_norm", "evenkeel", "backward", (8192, 1024), 0.875),
        fused_row("add_layer_norm", "evenkeel", "forward", (4096, 4096), None, "failed"),
        fused_row("add_rms_norm", "liger", "backward", (4096, 4096), 0.5),
    ]
    out = io.StringIO()
    tables.show(results, out)
    found = out.getvalue().partition("fused, bf16: share of a copy, forward / backward\n")[2].splitlines()[:4]
    assert [line.split() for line in found] == [
        ["op", "8192x1024", "4096x4096"],
        ["add_layer_norm", "evenkeel", "–", "/", "–", "–", "/", "–"],
        ["add_rms_norm", "evenkeel", "0.95", "/", "0.88", "–", "/", "–"],
        ["add_rms_norm", "liger", "–", "/", "–", "–", "/", "0.50"],
    ]


def test_an_op_that_a_backend_does_not_have_gets_no_row(tmp_path):
    kept, _ = kept_by(tmp_path, "--ops", "rms_norm,add_rms_norm", "--backends", "evenkeel-dlpack", "--pass", "forward")
    if status(kept, "evenkeel-dlpack")["status"] == "missing":
        pytest.skip("needs CuPy")
    assert [row["op"] for row in kept["results"]] == ["rms_norm"]
    kept, _ = kept_by(tmp_path, "--ops", "add_rms_norm", "--backends", "evenkeel-dlpack", "--pass", "forward")
    assert kept["results"] == [] and status(kept, "evenkeel-dlpack")["status"] == "skipped"
    assert status(kept, "evenkeel-dlpack")["note"].endswith("has none of the ops")


# ---- the time of kernels that no graph holds ----


@pytest.mark.parametrize(
    ("intervals", "length"),
    [
        ([], 0),
        ([(2, 5)], 3),
        ([(0, 1), (4, 6)], 3),  # a gap of the host's is no time of the device
        ([(0, 4), (3, 7)], 7),  # the second starts while the first ends
        ([(3, 7), (0, 4)], 7),
        ([(0, 10), (2, 3), (9, 12)], 12),
        ([(0, 2), (2, 5)], 5),
    ],
)
def test_time_that_two_kernels_share_counts_once(intervals, length):
    assert union_length(intervals) == length


@pytest.mark.parametrize(
    ("count", "seconds", "passes"),
    [(128, 1e-6, 1), (32, 10e-6, 4), (100, 10e-6, 2), (2, 130e-6, 64), (2, 1e-3, 10), (1, 1.0, 1)],
)
def test_a_graph_has_many_calls_unless_they_take_long(count, seconds, passes):
    assert passes_for(count, seconds) == passes


def test_a_loop_counts_kernels_and_nothing_of_the_host(monkeypatch):
    """With a profiler that saw two kernels that overlap, a launch on the host and a range that a user has named."""

    def event(begin, end, device=DeviceType.CUDA, named=False):
        return SimpleNamespace(
            time_range=SimpleNamespace(start=begin, end=end), device_type=device, is_user_annotation=named
        )

    seen = [event(10, 30), event(28, 50), event(0, 9, DeviceType.CPU), event(0, 900, named=True)]
    profiler = MagicMock()
    profiler.return_value.__enter__.return_value.events.return_value = seen
    monkeypatch.setattr("comparison.timing.profile", profiler)
    monkeypatch.setattr(torch.cuda, "stream", MagicMock())
    assert Loop([lambda: None, lambda: None], MagicMock()).seconds() == pytest.approx(40e-6 / 2)


# ---- the copy that a CPU is held against ----


@pytest.mark.parametrize("size", [1, 255, 256, 257, 300 * 1024 + 3])
def test_the_yardstick_copies_every_byte_and_none_beyond(tmp_path, size):
    yardstick = Yardstick(str(compile_copy(tmp_path)), 2)
    source = torch.randint(0, 255, (size + 256,), dtype=torch.uint8)
    to = torch.full_like(source, 255)
    yardstick.prepare(to.data_ptr(), source.data_ptr(), size // 256 * 256)
    to.fill_(255)
    yardstick.copy(to.data_ptr(), source.data_ptr(), size)
    assert torch.equal(to[:size], source[:size]) and bool((to[size:] == 255).all())


def test_the_yardstick_knows_the_blocks_of_the_copy():
    """A copy of cli/copy.c's own leaves what is less than a block; this side copies that."""
    from comparison import yardstick

    assert f"BLOCK = {yardstick.BLOCK}," in (yardstick.CLI / "copy.c").read_text()


@pytest.mark.parametrize(
    ("compiler", "words"),
    [("no-such-compiler", "no-such-compiler: No such file or directory"), ("false", "false: ended with status 1")],
)
def test_a_compiler_that_fails_is_named(tmp_path, monkeypatch, compiler, words):
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(RuntimeError, match=words):
        compile_copy(tmp_path)


@pytest.mark.skipif(DEVICE != "cpu", reason="a GPU has copies of its own")
def test_without_a_compiler_the_copy_is_pytorchs_and_the_results_say_so(run, tmp_path, monkeypatch):
    assert run[1]["machine"]["copy"] == "the faster of PyTorch's and evenkeel bench's"
    monkeypatch.setenv("CC", "no-such-compiler")
    kept, done = kept_by(tmp_path, "--backends", "pytorch", "--ops", "rms_norm", "--pass", "forward")
    assert kept["machine"]["copy"] == "PyTorch's alone"
    assert [row["status"] for row in kept["results"]] == ["ok"]
    assert "shares are of PyTorch's copy, for cli/copy.c is not compiled: no-such-compiler: No such" in done.stderr


# ---- the plan, and what is quoted ----


def test_the_set_fused_has_every_fused_op_at_three_shapes():
    cases = plan.cases(plan.Wishes("cuda", sets=("fused",)))
    assert [c.op for c in cases[: len(FUSED)]] == list(FUSED)  # by shape
    assert {(c.op, c.rows, c.cols) for c in cases} == {
        (op, *shape) for op in FUSED for shape in ((8192, 1024), (4096, 4096), (8192, 8192))
    }
    assert {(c.dtype, c.passes) for c in cases} == {("bf16", ("forward", "backward"))}
    assert {unit["do"] for unit in plan.units(plan.Wishes("cuda", sets=("fused",)), cases)} == {"case"}


def test_the_set_sizes_has_tensors_of_three_sizes_at_every_width():
    cases = plan.cases(plan.Wishes("cuda", ops=("rms_norm",), sets=("sizes",)))
    assert len(cases) == 3 * 11 and {c.cols for c in cases} >= {512, 16384}
    for found in cases:
        assert abs(found.tensor_bytes / (int(found.model.split()[0]) << 20) - 1) < 0.02


def test_cells_are_drawn_by_their_seed():
    def drawn(seed, **wishes):
        cases = plan.cases(plan.Wishes("cuda", draw=8, seed=seed, **wishes))
        return [(c.op, c.rows, c.cols, c.dtype, *c.passes) for c in cases]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1))) == 8 and all(len(cell) == 5 for cell in drawn(1))
    assert all(cell[0] == "add_rms_norm" for cell in drawn(1, ops=("add_rms_norm",)))
    assert len(plan.cases(plan.Wishes("cuda", ("rms_norm",), ("both",), ("f32",), (), (Shape(3, 5),), draw=9))) == 1
    assert all(cell[0] in FUSED and cell[3] == "bf16" for cell in drawn(1, sets=("fused",)))
    everything = plan.cases(plan.Wishes("cuda", draw=10**6))
    assert {c.op for c in everything} == set(OPS) and {c.dtype for c in everything} == {"bf16", "f16", "f32"}


EVERYTHING = ("layer_norm", "rms_norm"), ("forward", "backward", "both")


def case(rows, cols, dtype="bf16", op="layer_norm", bias=True, passes=("forward",)):
    return Case(op, dtype, rows, cols, bias and OPS[op].norm == "layer_norm", passes, "models")


def test_the_most_important_cases_come_first_and_none_twice():
    cases = plan.cases(plan.Wishes("cuda", *EVERYTHING))
    assert [(c.op, c.dtype, c.set) for c in cases[:11]] == [("layer_norm", "bf16", "models")] * 11
    assert (cases[0].rows, cases[0].cols, cases[0].model) == (2048, 4096, "Llama 7B, Mistral 7B")
    keys = [(c.op, c.dtype, c.rows, c.cols, c.bias, what) for c in cases for what in c.passes]
    assert len(keys) == len(set(keys))
    shapes = {(c.dtype, c.rows, c.cols, c.bias) for c in cases if c.op == "layer_norm"}
    assert {("f16", 4096, 8192, True), ("bf16", 4096, 8192, False), ("f16", 4096, 16384, True)} <= shapes
    assert {("bf16", 32768, 256, True), ("bf16", 16384, 131072, True), ("bf16", 8192, 262144, True)} <= shapes
    assert ("f16", 7, 343, True) in shapes and ("bf16", 512, 12288, True) in shapes


def test_options_narrow_the_plan():
    wishes = plan.Wishes("cpu", ("rms_norm",), ("backward",), ("f64",), (), (Shape(3, 5), Shape(7, 9)))
    assert [(c.op, c.rows, c.cols, c.dtype, c.bias, c.passes) for c in plan.cases(wishes)] == [
        ("rms_norm", 3, 5, "f64", False, ("backward",)),
        ("rms_norm", 7, 9, "f64", False, ("backward",)),
    ]
    assert plan.cases(plan.Wishes("cuda", ("rms_norm",), ("forward",), sets=("backward",))) == []
    assert all(c.tensor_bytes <= 4 << 24 for c in plan.cases(plan.Wishes("cpu", *EVERYTHING, sets=("widths",))))


def test_memory_is_that_of_layer_norm_wherever_it_stands_among_the_ops():
    wishes = plan.Wishes("cpu", ("rms_norm", "layer_norm"), ("both",), quick=True)
    assert [case.op for case in plan.memory_cases(wishes)] == ["layer_norm"]


def test_figures_are_quoted_with_their_date_on_the_gpu_they_come_from():
    quoted = Quoted("NVIDIA H200")
    (row,) = quoted.rows("liger", [case(2048, 4096)], "cuda")
    assert (row["status"], row["note"]) == ("quoted", "quoted, 2026-10")
    assert (row["seconds"], row["copy_seconds"]) == pytest.approx((11.6e-6, 9.9e-6))
    assert row["of_copy"] == pytest.approx(9.9 / 11.6) and row["host_seconds"] is None
    (row,) = quoted.rows("flash-attn", [case(1024, 131072)], "cuda")
    assert (row["status"], row["note"], row["seconds"]) == ("failed", "quoted, 2026-10: fails", None)


@pytest.mark.parametrize(
    ("backend", "dtype", "what", "seconds"),
    [
        ("quack", "f32", "backward", 42.9e-6),
        ("compile-max", "bf16", "forward", 16.0e-6),  # torch.compile was measured forward with autotuning,
        ("compile", "bf16", "backward", 46.6e-6),  # backward without
    ],
)
def test_a_pass_is_quoted_in_the_form_that_was_measured(backend, dtype, what, seconds):
    asked = [case(2048, 4096, dtype, passes=(name,)) for name in ("forward", "backward")]
    found = {row["pass"]: row for row in Quoted("NVIDIA H200").rows(backend, asked, "cuda")}
    assert found[what]["seconds"] == pytest.approx(seconds) and found[what]["weight_dtype"] == dtype
    assert backend == "quack" or list(found) == [what]


def test_nothing_is_quoted_that_was_not_measured():
    quoted = Quoted("NVIDIA H200")
    others = [case(2048, 4097), case(2048, 4096, "f16"), case(2048, 4096, op="rms_norm"), case(2048, 4096, bias=False)]
    assert quoted.rows("liger", others, "cuda") == []
    assert quoted.rows("liger", [case(2048, 4096, passes=("both",))], "cuda") == []
    assert not quoted.has("transformer-engine") and quoted.has("apex")
    assert not Quoted("NVIDIA A100").has("apex") and not Quoted(None).has("apex")
