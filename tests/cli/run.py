"""Tests of the program evenkeel: golden sessions (*.session beside this file), the shape of its JSON and CSV,
and what it does on a terminal.

    python3 tests/cli/run.py build/evenkeel             run all; ends with "N passed, N failed"
    python3 tests/cli/run.py build/evenkeel --update    rewrite the sessions that differ, for a person to read
    python3 tests/cli/run.py build/evenkeel --standin build/tests

With --standin cuda.session and the checks on a GPU run, too, on the stand-ins for CUDA's libraries (tests/standin);
they take two minutes. A session is a list of commands with what they answer:

    $ evenkeel run layer_norm --rows 3     the command; it runs in a folder with the files of data/
    exit 0
    | a line of standard output            with {int}, {number}, {any}, {version}, {isa}, {cpu} as patterns
    ! a line of standard error

SPDX-License-Identifier: MIT
"""

import argparse
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What a result of bench --json has, and of what type; scripts rely on it.
RESULT = {
    "device": str,
    "op": str,
    "pass": str,
    "dtype": str,
    "rows": int,
    "cols": int,
    "threads": int,
    "isa": str,
    "seconds": float,
    "bytes": int,
    "copy_seconds": float,
    "of_copy": float,
    "peers": dict,
}


class Program:
    """The program under test, run in a folder of its own, without what the environment may add."""

    def __init__(self, path, folder):
        self.path = str(Path(path).resolve())
        self.folder = folder
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("EVENKEEL_", "NO_COLOR", "LC_"))
        }
        # No peer, no GPU, no NVRTC: whether they are installed must not change the outputs.
        self.environment.update(
            EVENKEEL_DNNL="/nonexistent",
            EVENKEEL_LIBCUDA="/nonexistent",
            EVENKEEL_NVRTC="/nonexistent",
            EVENKEEL_CACHE="",
            LANG="C.UTF-8",
            TERM="xterm",
        )

    def run(self, arguments, **environment):
        return subprocess.run(
            [self.path, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            env={**self.environment, **environment},
            check=False,
        )

    def run_on_terminal(self, arguments, **environment):
        """Standard output and error as one text, both a terminal."""
        parent, child = pty.openpty()
        with subprocess.Popen(
            [self.path, *arguments],
            cwd=self.folder,
            stdout=child,
            stderr=child,
            env={**self.environment, **environment},
        ) as process:
            os.close(child)
            text = b""
            while True:
                try:
                    piece = os.read(parent, 65536)
                except OSError:
                    break
                if not piece:
                    break
                text += piece
        os.close(parent)
        return text.decode()


class ProgramOnStandin(Program):
    """The same with one GPU, which the stand-ins for CUDA's libraries emulate."""

    def __init__(self, path, folder, standin):
        super().__init__(path, folder)
        self.environment.update(
            EVENKEEL_LIBCUDA=str(standin / "libstandin_cuda.so"),
            EVENKEEL_NVRTC=str(standin / "libstandin_nvrtc.so"),
            EVENKEEL_CACHE=str(folder / "kernels"),
        )


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, fine, detail=""):
        self.passed += bool(fine)
        self.failed += not fine
        print(("ok    " if fine else "FAIL  ") + name)
        if not fine and detail:
            print("      " + str(detail).replace("\n", "\n      "))


# ---- golden sessions ----


def split_command(line):
    """The arguments and the environment of a line such as `$ EVENKEEL_ISA=avx9 evenkeel info`."""
    words = shlex.split(line)
    at = words.index("evenkeel")
    return words[at + 1 :], dict(word.split("=", 1) for word in words[:at])


OPS = (
    "layer_norm",
    "rms_norm",
    "add_layer_norm",
    "add_rms_norm",
    "layer_norm_residual",
    "rms_norm_residual",
    "layer_norm_act",
    "rms_norm_act",
    "layer_norm_gated",
    "rms_norm_gated",
    "glu",
    "bias_act",
    "rope",
    "qk_norm_rope",
)


def read_session(path):
    """A list of (comment lines, command, expected lines)."""
    blocks, comments = [], []
    for line in path.read_text().splitlines():
        if line.startswith("$ "):
            blocks.append((comments, line[2:], []))
            comments = []
        elif not blocks or line.startswith("#") or not line.strip():
            comments.append(line)
        else:
            blocks[-1][2].append(line)
    return blocks


def machine_values(program):
    info = json.loads(program.run(["info", "--json", "-"]).stdout)
    return {"version": info["evenkeel"], "isa": info["machine"]["isa"], "cpu": info["machine"]["cpu"]}


def pattern_of(line, values):
    patterns = {
        "int": r"-?\d+",
        "number": r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?",
        "any": r".*",
        **{name: re.escape(value) for name, value in values.items()},
    }
    parts = re.split(r"\{(\w+)\}", line)
    return "".join(patterns[part] if i % 2 else re.escape(part) for i, part in enumerate(parts))


def actual_lines(done):
    # A line without text is a bare mark, so that no session has blanks at the end of a line.
    return [
        f"exit {done.returncode}",
        *[f"| {line}".rstrip() if not line else f"| {line}" for line in done.stdout.splitlines()],
        *[f"! {line}".rstrip() if not line else f"! {line}" for line in done.stderr.splitlines()],
    ]


def matches(expected, actual, values):
    return len(expected) == len(actual) and all(
        re.fullmatch(pattern_of(want, values), have) for want, have in zip(expected, actual)
    )


def generalized(line, values):
    """For --update: what differs from machine to machine and run to run becomes a pattern."""
    line = re.sub(r"\d+\.\d+(e[-+]?\d+)? (ms|us|ns|s|GB/s|of a copy|GB|KB)\b", r"{number} \2", line)
    line = re.sub(r"compiles for \d+ ms", "compiles for {int} ms", line)
    line = re.sub(r"(NVRTC +[\d.]+, ).*", r"\1{any}", line)
    line = re.sub(r"(kernels +)/.*(, \d+ kept)", r"\1{any}\2", line)
    line = re.sub(r"(caches +).*", r"\1{any}", line)
    line = re.sub(r"(reference|scalar)( \(chosen\))?, (avx2|neon).*", r"\1\2, {any}", line)
    line = re.sub(r"^\|   (\d+x\d+ +\w+) .*", r"|   \1 {any}", line)
    for name in ("cpu", "version"):
        line = line.replace(values[name], "{" + name + "}")
    return re.sub(rf"\b{re.escape(values['isa'])}\b", "{isa}", line)


def first_difference(expected, actual, values):
    for i in range(max(len(expected), len(actual))):
        want = expected[i] if i < len(expected) else "(nothing)"
        have = actual[i] if i < len(actual) else "(nothing)"
        if i >= len(expected) or i >= len(actual) or not re.fullmatch(pattern_of(want, values), have):
            return f"expected  {want}\nbut got   {have}"
    return ""


def run_session(path, program, checks, values, update):
    blocks, changed, text = read_session(path), False, []
    for comments, command, expected in blocks:
        arguments, environment = split_command(command)
        actual = actual_lines(program.run(arguments, **environment))
        same = matches(expected, actual, values)
        if update and not same:
            expected, changed = [generalized(line, values) for line in actual], True
        text += [*comments, f"$ {command}", *expected]
        if not update:
            checks.check(f"{path.stem}: {command}", same, first_difference(expected, actual, values))
    if changed:
        path.write_text("\n".join(text) + "\n")
        print(f"updated {path.name}")


# ---- JSON and CSV ----


def wrong_fields(result):
    return [
        name
        for name, kind in RESULT.items()
        if not isinstance(result.get(name), (int, float) if kind is float else kind)
    ]


def check_bench_json(program, checks):
    arguments = ["bench", "--quick", "--shapes", "5x33,64x256", "--dtype", "f32,bf16", "--json", "-"]
    done = program.run(arguments)
    checks.check("bench --json - exits with 0", done.returncode == 0, done.stderr)
    data = json.loads(done.stdout)
    checks.check(
        "bench --json has evenkeel, machine, results",
        isinstance(data["evenkeel"], str)
        and isinstance(data["machine"]["cpu"], str)
        and isinstance(data["results"], list),
        list(data),
    )
    results = data["results"]
    checks.check(
        "bench --json has a result for each op, pass, dtype and shape",
        len({(r["op"], r["pass"], r["dtype"], r["rows"]) for r in results}) == len(results) == 32,
        len(results),
    )
    wrong = [f"{r.get('op')}: {wrong_fields(r)}" for r in results if wrong_fields(r)]
    checks.check("each result has the fields that scripts rely on", not wrong, wrong)
    sizes = {"f32": 4, "bf16": 2}
    tensors = {
        ("layer_norm", "forward"): 2,
        ("layer_norm", "backward"): 3,
        ("swiglu", "forward"): 3,
        ("swiglu", "backward"): 5,
        ("rope", "forward"): 4,
        ("rope", "backward"): 4,
        ("qk_norm_rope", "forward"): 4,
        ("qk_norm_rope", "backward"): 6,
    }
    wrong = [
        r for r in results if r["bytes"] != r["rows"] * r["cols"] * sizes[r["dtype"]] * tensors[r["op"], r["pass"]]
    ]
    checks.check(
        "bytes are x + y forward, x + dy + dx backward; of swiglu those of three tensors, and of five; of q and k both",
        not wrong,
        wrong,
    )
    wrong = [r for r in results if abs(r["of_copy"] - r["copy_seconds"] / r["seconds"]) > 1e-3]
    checks.check("of_copy is copy_seconds / seconds", not wrong, wrong)
    checks.check("with JSON on standard output the table is on standard error", "of copy" in done.stderr)
    return data


def check_bench_list(program, checks):
    """bench without shapes also has the small calls, as a list of their own."""
    done = program.run(["bench", "--quick", "rms_norm", "--pass", "forward", "--threads", "1", "--json", "list.json"])
    checks.check("bench --quick exits with 0", done.returncode == 0, done.stderr)
    data = json.loads((program.folder / "list.json").read_text())
    shapes = {(r["rows"], r["cols"]) for r in data["results"]}
    checks.check("bench --quick measures its three shapes", shapes == {(512, 768), (2048, 4096), (333, 1000)}, shapes)
    cached = [(r["rows"], r["cols"]) for r in data["cached"]]
    checks.check("and the small calls", cached == [(1, 1), (1, 4096), (8, 768), (512, 768)], cached)


def check_names(program, checks):
    """An op that is a part of another writes its own name."""
    op, small = "layer_norm_gelu", ["--dtype", "f32", "--threads", "1", "--json", "-"]
    run = program.run(["run", op, "--rows", "3", "--cols", "5", *small])
    bench = program.run(["bench", op, "--quick", "--shapes", "5x33", "--pass", "forward", *small])
    names = [
        explain(program, op)["op"],
        *[result["op"] for done in (run, bench) for result in json.loads(done.stdout)["results"]],
    ]
    checks.check(f"run, explain and bench --json name {op}", names == [op] * 3, names)


def check_csv(program, checks):
    done = program.run(["bench", "--quick", "layer_norm", "--shapes", "5x33", "--dtype", "f64", "--csv", "-"])
    rows = [line.split(",") for line in done.stdout.splitlines()]
    checks.check(
        "bench --csv - has a head and a line for each cell, of the same length",
        len(rows) == 3 and len({len(row) for row in rows}) == 1,
        done.stdout,
    )
    checks.check("its head names the fields of JSON", set(RESULT) - {"peers"} <= set(rows[0]), rows[0])


def check_compare(program, checks, data):
    """An older file that was twice as fast is a loss in every cell; one that was half as fast in none."""
    cells = len(data["results"])
    arguments = ["bench", "--quick", "--shapes", "5x33,64x256", "--dtype", "f32,bf16", "--compare", "older.json"]
    for factor, losses in ((100, cells), (0.01, 0)):
        older = json.loads(json.dumps(data))
        for result in older["results"]:
            result["of_copy"] *= factor
        (program.folder / "older.json").write_text(json.dumps(older))
        done = program.run(arguments)
        checks.check(
            f"bench --compare marks {losses} losses against {factor} times the speed",
            f"{cells} cells compared, {losses} lost" in done.stdout and done.stdout.count("LOSS") == losses,
            done.stdout + done.stderr,
        )


def check_support(support, devices, fine, checks):
    """A line for every op, pass and pair of dtypes of every device; `fine` is what the calls answer that may go well."""
    dtypes = ("f32", "f16", "bf16", "f64")
    goes = {(d, w) for d in dtypes for w in dtypes if d == w or (d in ("f16", "bf16") and w == "f32")}
    wanted = {
        (device, op, direction, d, w): fine if (d, w) in goes else "EK_ERROR_DTYPE"
        for device in devices
        for op in OPS
        for direction in ("forward", "backward")
        for d in dtypes
        for w in dtypes
    }
    found = {(s["device"], s["op"], s["pass"], s["dtype"], s["weight_dtype"]): s["status"] for s in support}
    checks.check(
        f"info --json has the support of {' and '.join(devices)}: {fine}",
        found == wanted and len(support) == len(wanted),
        sorted(found.items() ^ wanted.items())[:4],
    )


def check_info(program, checks):
    data = json.loads(program.run(["info", "--json", "-"]).stdout)
    levels = {level["name"]: level["usable"] for level in data["levels"]}
    checks.check(
        "info --json lists levels, reference and scalar among them",
        levels.get("reference") is True and levels.get("scalar") is True,
        levels,
    )
    checks.check("the level chosen is usable", levels[data["machine"]["isa"]] is True, data)
    checks.check(
        "info --json says what of CUDA is missing",
        data["gpus"] == [] and data["driver"]["missing"] and data["nvrtc"]["missing"] and data["cache"]["missing"],
        data,
    )
    check_support(data["support"], ["cpu"], "EK_OK", checks)
    done = program.run(["info", "--threads", "1", "--measure", "here.json"])
    measured = json.loads((program.folder / "here.json").read_text()) if done.returncode == 0 else {}
    checks.check(
        "info --measure writes copies by size and FLOP rates",
        len(measured.get("copy", [])) >= 5
        and all(c["bytes_per_second"] > 1e8 for c in measured["copy"])
        and {f["dtype"] for f in measured["flops"]} == {"f32", "f64"},
        done.stderr,
    )


def check_full_disk(program, checks):
    """A report that cannot be written is a failure: /dev/full takes nothing."""
    small = ["--dtype", "f32", "--threads", "1"]
    for arguments in (
        ["--version"],
        ["help"],
        ["run", "--help"],
        ["info"],
        ["explain", "layer_norm"],
        ["run", "layer_norm", "--rows", "3", "--cols", "5", "--time", "0", *small],
        ["verify", "layer_norm", "--shapes", "3x5", *small],
    ):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [program.path, *arguments],
                cwd=program.folder,
                env=program.environment,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=300,
                check=False,
            )
        checks.check(
            f"{' '.join(arguments)} > /dev/full exits with 1 and says why",
            done.returncode == 1
            and done.stderr == "evenkeel: standard output: cannot be written (No space left on device)\n",
            f"exit {done.returncode}: {done.stderr}",
        )


def explain(program, *arguments):
    done = program.run(["explain", *arguments, "--json", "-"])
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}


def check_ridge(program, checks):
    """Of a CPU whose small copies are a cache's, of a GPU whose small copies take a launch; f64 is above their ridge."""
    for name, dtype in (
        (name, dtype) for name in ("machine.json", "machine_gpu.json", "h200") for dtype in ("f32", "f64")
    ):
        data = explain(program, "layer_norm", "--rows", "2", "--cols", "8", "--dtype", dtype, "--machine", name)
        ridge, costs = data["machine"]["ridge"], [c for v in data["variants"] for c in (*v["kernels"], v["total"])]
        costs = [c for c in costs if c["bound"]]  # not those of another device
        checks.check(
            f"explain --machine {name} --dtype {dtype} --json: bound says on which side of the ridge a cost lies",
            len(costs) > 5 and all((c["bound"] == "compute") == (c["intensity"] > ridge) for c in costs),
            data,
        )
        seconds = [(c["read_bytes"] + c["write_bytes"]) / data["machine"]["bytes_per_second"] for c in costs]
        checks.check(
            "and no time is below that of its bytes",
            all(c["roofline_seconds"] > 0.9999 * s for c, s in zip(costs, seconds)),
            data,
        )


def check_explain(program, checks):
    numbers = ("flops", "read_bytes", "write_bytes")
    for arguments in (["layer_norm"], ["rms_norm", "--pass", "backward", "--dtype", "bf16", "--compute-dtype", "f32"]):
        data = explain(program, *arguments)
        name = f"explain {' '.join(arguments)} --json"
        checks.check(
            f"{name} has the three variants",
            [v["name"] for v in data.get("variants", [])] == ["reference", "pytorch", "evenkeel"]
            and data["op"] == arguments[0]
            and data["pass"] in ("forward", "backward")
            and data["sizes"]["hidden_size"] == 4096,
            data,
        )
        kernels = [k for v in data["variants"] for k in v["kernels"]]
        checks.check(
            "its kernels have numbers, formulas, a type and an origin",
            all(
                set(k) >= {"name", "type", "origin", "symbols", *numbers} and set(k["symbols"]) == set(numbers)
                for k in kernels
            ),
            kernels,
        )
        checks.check(
            "its totals are the sums of the kernels",
            all(v["total"][n] == sum(k[n] for k in v["kernels"]) for v in data["variants"] for n in numbers),
        )
        checks.check(
            "and have intensity, bound and the time of the roofline",
            all(
                abs(t["intensity"] - t["flops"] / (t["read_bytes"] + t["write_bytes"])) < 1e-5
                and t["bound"] == "memory"
                and t["roofline_seconds"] > 0
                for t in (v["total"] for v in data["variants"])
            ),
            data,
        )
        used = {name for v in data["variants"] for name in re.findall(r"[a-z]\w+", str(v["total"]["symbols"].values()))}
        known = {s["name"] for v in data["variants"] for s in v["symbols"] if s["origin"] and s["value"] > 0}
        checks.check("every symbol has an origin and a value", used - {"dict_values"} == known, used ^ known)
    data = explain(program, "layer_norm", "--device", "cpu", "--machine", "machine.json")
    limits = {
        v["name"]: [(k["bound"] is None, k["roofline_seconds"] is None) for k in [*v["kernels"], v["total"]]]
        for v in data["variants"]
    }
    checks.check(
        "on a CPU the kernels of a GPU's PyTorch have no bound and no time, the others have both",
        set(limits["pytorch"]) == {(True, True)}
        and {pair for name in ("reference", "evenkeel") for pair in limits[name]} == {(False, False)},
        limits,
    )
    data = explain(program, "${torch.rsqrt}(2, 3, 1) + 1")
    checks.check(
        "explain --json of an expression has its total",
        data.get("variants", [{}])[0].get("total", {}).get("flops") == 13,
        data,
    )
    data = explain(program, "layer_norm", "--machine", "this", "--rows", "1", "--cols", "64")
    checks.check(
        "explain --machine this measures the CPU where there is no GPU",
        data.get("device") == "cpu"
        and data.get("machine", {}).get("bytes_per_second", 0) > 1e8
        and data["machine"]["ridge"] > 0,
        data,
    )
    checks.check(
        "info --measure writes what --machine takes",
        "error" not in explain(program, "layer_norm", "--machine", "here.json"),
    )


def check_cuda(program, checks):
    info = json.loads(program.run(["info", "--json", "-"]).stdout)
    checks.check(
        "info --json lists the GPU",
        [gpu["device"] for gpu in info["gpus"]] == ["cuda:0"]
        and info["gpus"][0]["multiprocessors"] > 0
        and info["nvrtc"]["version"],
        info,
    )
    check_support(info["support"], ["cpu", "cuda:0"], "EK_OK", checks)
    without = json.loads(program.run(["info", "--json", "-"], EVENKEEL_NVRTC="/nonexistent", EVENKEEL_CACHE="").stdout)
    check_support([s for s in without["support"] if s["device"] != "cpu"], ["cuda:0"], "EK_ERROR_COMPILE", checks)
    # Little rotates and little is timed: an emulated kernel takes its time.
    bench = [
        "bench",
        "rms_norm",
        "--quick",
        "--device",
        "cuda",
        "--shapes",
        "1x4096",
        "--dtype",
        "f64",
        "--pass",
        "forward",
        "--rotate",
        "1",
    ]
    done = program.run([*bench, "--json", "-"])
    checks.check("bench --device cuda exits with 0", done.returncode == 0, done.stderr)
    results = json.loads(done.stdout)["results"]
    figures = ("device_seconds", "host_seconds", "launch_seconds")
    checks.check(
        "its results have all fields, and those of a GPU",
        len(results) == 1
        and not wrong_fields(results[0])
        and results[0]["device"] == "cuda:0"
        and results[0]["threads"] == 0
        and all(results[0][name] > 0 for name in figures),
        results,
    )
    rows = [line.split(",") for line in program.run([*bench, "--csv", "-"]).stdout.splitlines()]
    checks.check(
        "bench --device cuda --csv has columns for them",
        len(rows) == 2 and len(rows[0]) == len(rows[1]) and set(figures) <= set(rows[0]),
        rows,
    )


def check_measure_on_gpu(program, checks):
    """A small GPU, with memory for the first size alone: an emulated kernel takes its time."""
    small = {"EVENKEEL_STANDIN_SMS": "1", "EVENKEEL_STANDIN_MEMORY": "100"}
    done = program.run(["info", "--device", "cuda", "--measure", "gpu.json"], **small)
    measured = json.loads((program.folder / "gpu.json").read_text()) if done.returncode == 0 else {}
    machine = measured.get("machine", {})
    checks.check(
        "info --measure --device cuda names the GPU",
        machine.get("device") == "cuda" and machine["gpu"] == "evenkeel stand-in GPU 0",
        done.stderr or machine,
    )
    checks.check(
        "and writes a copy for each size that fits, without threads",
        [set(c) for c in measured["copy"]] == [{"bytes", "bytes_per_second"}]
        and measured["copy"][0]["bytes"] == 65536
        and measured["copy"][0]["bytes_per_second"] > 0,
        measured,
    )
    checks.check(
        "and the FLOP rates",
        [(set(f), f["dtype"]) for f in measured["flops"]]
        == [({"dtype", "flops_per_second"}, "f32"), ({"dtype", "flops_per_second"}, "f64")]
        and all(f["flops_per_second"] > 0 for f in measured["flops"]),
        measured,
    )
    checks.check(
        "and shows them",
        re.search(r"copy, GB/s\n +64 KB +[\d.]+\narithmetic, GFLOP/s\n  f32 +[\d.]+\n  f64", done.stdout),
        done.stdout,
    )


def check_explain_on_gpu(program, checks):
    done = program.run(
        ["explain", "layer_norm", "--machine", "this", "--json", "-"],
        EVENKEEL_STANDIN_SMS="1",
        EVENKEEL_STANDIN_MEMORY="100",
    )
    data = json.loads(done.stdout) if done.returncode == 0 else {}
    checks.check(
        "explain --machine this measures the GPU where there is one",
        data.get("device") == "cuda" and data["machine"]["bytes_per_second"] > 0,
        done.stderr,
    )
    checks.check(
        "and counts for its multiprocessors",
        any("a GPU of 1 multiprocessors" in a["text"] for a in data.get("assumptions", [])),
        data,
    )


def check_quick_on_gpu(program, checks):
    """The quick list in one dtype, on a terminal, with nothing compiled before."""
    cache = program.folder / "quick"
    text = program.run_on_terminal(
        ["verify", "--quick", "--device", "cuda", "--dtype", "f32"], EVENKEEL_CACHE=str(cache)
    )
    kernels = len(list(cache.glob("evenkeel-kernels/*.ekc")))
    summary = re.search(r"all equal.*bit for bit, in ([\d.]+) s", text)
    checks.check("verify --quick --device cuda is equal", summary, text)
    checks.check("and compiles few kernels", 20 <= kernels <= 48, kernels)
    checks.check(
        "and shows how far it is while it compiles",
        re.search(r" %  (layer|rms)_norm (for|back)ward f32", text) or (summary and float(summary.group(1)) < 4),
        text,
    )


# ---- terminal ----


def check_terminal(program, checks):
    run = ["run", "layer_norm", "--rows", "8", "--cols", "64", "--time", "0"]
    checks.check("in a pipe there are no escape sequences", "\033" not in program.run(run).stdout)
    checks.check("on a terminal there is colour", "\033[1m" in program.run_on_terminal(run))
    checks.check("NO_COLOR turns it off", "\033" not in program.run_on_terminal(run, NO_COLOR="1"))
    checks.check("a dumb terminal gets plain text", "\033" not in program.run_on_terminal(run, TERM="dumb"))
    bench = ["bench", "layer_norm", "--quick", "--shapes", "64x256", "--dtype", "f32", "--pass", "forward"]
    text = program.run_on_terminal(bench, NO_COLOR="1", LANG="C")
    row = [line for line in text.splitlines() if "64x256" in line and "f32" in line]
    checks.check("bench draws bars on a terminal", row and len(row[-1]) >= 70, text)
    # How long this takes is the machine's business: both answers are judged by the time it says it took.
    verify = ["verify", "layer_norm", "--dtype", "f32", "--shapes", ",".join(["2048x1024"] * 8)]
    text = program.run_on_terminal(verify)
    summary = re.search(r"bit for bit, in ([\d.]+) s", text)
    if not summary:
        checks.check("verify on a terminal ends with its summary", False, text)
        return
    seconds = float(summary.group(1))
    shown = " %  layer_norm" in text
    checks.check(
        "a progress line is shown after two seconds and not before",
        shown if seconds > 4 else not shown if seconds < 2 else True,
        text,
    )
    end = text.rsplit("\033[K", 1)[-1]
    checks.check("and is gone at the end", not shown or end.startswith("\033[32mall equal"), repr(text[-400:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the program evenkeel")
    parser.add_argument("--standin", type=Path, help="folder of the stand-ins: also cuda.session, and checks on a GPU")
    parser.add_argument("--update", action="store_true", help="rewrite sessions that differ")
    options = parser.parse_args()
    if options.standin and not (options.standin / "libstandin_cuda.so").exists():
        parser.error(f"--standin: {options.standin / 'libstandin_cuda.so'} is not there")
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in (HERE / "data").iterdir():
            shutil.copy(file, folder)
        program = Program(options.program, folder)
        values = machine_values(program)
        programs = {"cuda": None}
        if options.standin:
            programs["cuda"] = ProgramOnStandin(program.path, folder, options.standin.absolute())
        for path in sorted(HERE.glob("*.session")):
            if programs.get(path.stem, program):
                run_session(path, programs.get(path.stem, program), checks, values, options.update)
        if options.update:
            return 0
        data = check_bench_json(program, checks)
        check_compare(program, checks, data)
        check_bench_list(program, checks)
        check_names(program, checks)
        check_csv(program, checks)
        check_info(program, checks)
        check_full_disk(program, checks)
        check_explain(program, checks)
        check_ridge(program, checks)
        if programs["cuda"]:
            check_cuda(programs["cuda"], checks)
            check_measure_on_gpu(programs["cuda"], checks)
            check_explain_on_gpu(programs["cuda"], checks)
            check_quick_on_gpu(programs["cuda"], checks)
        check_terminal(program, checks)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
