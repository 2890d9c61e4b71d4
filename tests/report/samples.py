"""Results files of every kind with made-up figures, for the tests of the report: what the programs write, in form.
SPDX-License-Identifier: MIT"""

import json
import math
import pathlib

VERSION = "0.1.0"
PEERS = {"pytorch": 1.9, "compile": 1.3, "liger": 1.25, "quack": 1.2, "flash-attn": 1.15, "onednn": 1.4}
GPU_PEERS = ("pytorch", "compile", "liger", "quack")
CPU_PEERS = ("pytorch", "onednn")
SHAPES = ((32768, 256), (16384, 768), (8192, 1024), (2048, 4096), (4096, 8192), (4096, 16384), (1000, 3333))
TIMED = (  # what peers are compared in
    ("layer_norm", "forward", "bf16"), ("layer_norm", "backward", "bf16"), ("layer_norm", "both", "bf16"),
    ("layer_norm", "forward", "f32"), ("rms_norm", "forward", "bf16"),
)  # fmt: skip
COPIES = {"forward": 1, "backward": 1.5, "both": 2.5}
MACHINES = {
    "cpu": {"cpu": "Sample CPU", "isa": "avx2", "threads": 2, "l1d_bytes": 32768, "l2_bytes": 1 << 20, "numerics": 1},
    "cuda": {"cpu": "Sample CPU", "threads": 16, "gpu": "Sample GPU", "gpu_isa": "sm_90", "numerics": 1},
}
BANDWIDTH = {"cpu": 4e10, "cuda": 4e12}
ELEMENT = {"f32": 4, "bf16": 2, "f16": 2}


def _copy_seconds(device, direction, dtype, rows, cols):
    return rows * cols * ELEMENT[dtype] * 2 * COPIES[direction] / BANDWIDTH[device] + (2e-6 if device == "cuda" else 0)


def _cell(device, op, direction, dtype, rows, cols):
    return {"device": device, "op": op, "pass": direction, "dtype": dtype, "rows": rows, "cols": cols}


def bench(device):
    """`evenkeel bench --json`."""
    results = []
    for op in ("layer_norm", "rms_norm"):
        for dtype in ("f32", "bf16"):
            for direction in ("forward", "backward"):
                for rows, cols in SHAPES:
                    copy = _copy_seconds(device, direction, dtype, rows, cols)
                    seconds = copy * (1.05 if direction == "forward" else 1.2)
                    peers = {"onednn": seconds * 1.4} if device == "cpu" else {}
                    results.append(
                        _cell(device, op, direction, dtype, rows, cols)
                        | {"threads": 2, "isa": "avx2", "seconds": seconds, "bytes": 1, "copy_seconds": copy}
                        | {"of_copy": round(copy / seconds, 4), "weight_dtype": dtype, "peers": peers}
                    )
    small = _cell(device, "layer_norm", "forward", "f32", 1, 4096)
    cached = [small | {"threads": 1, "isa": "avx2", "seconds": 1e-6, "bytes": 32768, "peers": {"onednn": 2e-6}}]
    machine = MACHINES[device]
    return {"evenkeel": VERSION, "machine": machine, "results": results, "cached": cached if device == "cpu" else []}


def _compared(backend, device, op, direction, dtype, rows, cols):
    copy = _copy_seconds(device, direction, dtype, rows, cols)
    seconds = copy * (1.06 if direction == "forward" else 1.2) * (PEERS.get(backend, 1) + math.log2(cols) / 60)
    return _cell(device, op, direction, dtype, rows, cols) | {
        "backend": backend, "weight_dtype": dtype, "weight": 1, "bias": 1,
        "model": 'GPT <2> & "friends"' * (cols == 768), "set": "models",
        "seconds": seconds, "host_seconds": seconds + 5e-6, "copy_seconds": copy,
        "bytes": int(2 * COPIES[direction]) * rows * cols * ELEMENT[dtype],
        "of_copy": copy / seconds, "status": "ok", "note": "",
    }  # fmt: skip


def _unhappy(results):
    """A peer of each sad ending."""
    template = results[0] | {"backend": "apex", "seconds": None, "host_seconds": None, "of_copy": None, "model": ""}
    return [
        template | {"status": "wrong", "note": "dx differs by 0.3", "seconds": 1e-7, "of_copy": 30},  # wrong and fast
        template | {"status": "failed", "note": "<no kernel image>"},
        template | {"status": "timeout", "note": "after 60 s"},
    ]


def compare(device):
    """`bench/compare.py --json`."""
    peers = GPU_PEERS if device == "cuda" else CPU_PEERS
    libraries = ("evenkeel", *peers)
    results = [
        _compared(backend, device, op, direction, dtype, rows, cols)
        for op, direction, dtype in (TIMED if device == "cuda" else TIMED[:2])
        for rows, cols in SHAPES
        for backend in libraries
    ]
    if device == "cuda":
        quoted = [r | {"backend": "flash-attn", "status": "quoted", "seconds": r["seconds"] * 1.15,
                       "of_copy": r["of_copy"] / 1.15} for r in results if r["backend"] == "evenkeel"]  # fmt: skip
        results += quoted + _unhappy(results)
    offsets = [
        {"backend": b, "op": op, "dtype": "f32", "cols": 4096, "offset": offset,
         "error": None if b == "quack" and offset >= 1e5
         else 4e-7 if b == "evenkeel" else 5e-7 * max(1, offset) ** PEERS[b] ** 0.5}
        for b in libraries for op in ("layer_norm", "rms_norm") for offset in (0, 1, 10, 100, 1e3, 1e4, 1e5)
    ]  # fmt: skip
    accuracy = [
        {"backend": b, "op": op, "dtype": dtype, "rows": 512, "cols": 4096, "out": 3e-7, "mean": 1e-9,
         "rstd": None if b == "liger" else 2e-8, "dx": 4e-7, "dweight": 1e-5,
         "dbias": None if op == "rms_norm" else 2e-5}
        for b in libraries for op in ("layer_norm", "rms_norm") for dtype in ("f32", "bf16")
    ]  # fmt: skip
    memory = [
        {"backend": b, "op": "layer_norm", "dtype": "f32", "rows": rows, "cols": 4096, "model": f"batch {rows // 1024}",
         "peak_bytes": rows * 4096 * 12 + (0 if b == "evenkeel" else 1 << 20), "saved_bytes": rows * 4096 * 4}
        for b in libraries for rows in (32 << 10, 64 << 10)
    ]  # fmt: skip
    backends = [{"name": b, "version": "1.0", "status": "run", "note": ""} for b in libraries]
    backends += [{"name": "apex", "version": None, "status": "missing", "note": "pip install apex"}]
    return {
        "evenkeel": VERSION, "format": 1, "kind": "compare", "date": "2026-11-15",
        "command": f"python bench/compare.py --device {device} --json compare-{device}.json",
        "machine": MACHINES[device] | {"torch": "2.11.0"}, "backends": backends, "results": results,
        "accuracy": accuracy, "offsets": offsets, "memory": memory,
    }  # fmt: skip


def quoted():
    """bench/quoted.json: what others measured."""
    table = {"op": "layer_norm", "pass": "forward", "dtype": "bf16", "bias": 1, "backends": ["liger", "te"]}
    table |= {"weight_dtype": {"te": "f32"}}
    table["microseconds"] = {"1024x131072": [127.2, "fails", 150], "4096x8192": [33.1, None, 40]}
    return {"date": "2026-10", "gpu": "Sample GPU", "cuda": "13.0", "torch": "2.11", "method": "by graphs",
            "tables": [table]}  # fmt: skip


def machine(device):
    """`evenkeel info --measure`."""
    threads = [{"threads": n} for n in (1, 2)] if device == "cpu" else [{}]
    copies = [
        {"bytes": 1 << size, "bytes_per_second": BANDWIDTH[device] * (t.get("threads", 2) / 2) * size / 29} | t
        for t in threads for size in range(20, 30)
    ]  # fmt: skip
    rates = {"f32": 15 * BANDWIDTH[device], "f64": 7.5 * BANDWIDTH[device]}
    flops = [{"dtype": dtype, "flops_per_second": rate} | t for t in threads[-1:] for dtype, rate in rates.items()]
    described = MACHINES[device] | ({"device": "cuda"} if device == "cuda" else {})
    return {"evenkeel": VERSION, "machine": described, "copy": copies, "flops": flops}


def info():
    """`evenkeel info --json`, the part that is read."""
    support = [
        {"device": device, "op": op, "pass": direction, "dtype": dtype, "weight_dtype": weight,
         "status": "EK_ERROR_DTYPE" if (device, dtype) == ("cuda:0", "f64") else "EK_OK"}
        for device in ("cpu", "cuda:0") for op in ("layer_norm", "rms_norm") for direction in ("forward", "backward")
        for dtype in ("f32", "bf16", "f16", "f64") for weight in {dtype: 0, "f32": 0}
        if dtype != "f64" or weight == dtype
    ]  # fmt: skip
    return {"evenkeel": VERSION, "numerics": 1, "machine": MACHINES["cuda"], "support": support}


def explain(op, direction, dtype):
    """`evenkeel explain --json`."""
    rows, cols, size = 4096, 16384, ELEMENT[dtype]
    cells, tensors = rows * cols, 2 if direction == "forward" else 3

    def kernel(name, flops, reads, writes):
        all_cells = "batch_size*seq_len*hidden_size"
        symbols = {"flops": f"{flops}*{all_cells}", "read_bytes": f"{reads}*{all_cells}*a_bytes",
                   "write_bytes": f"{writes}*{all_cells}*a_bytes"}  # fmt: skip
        return {"name": name, "flops": flops * cells, "read_bytes": reads * cells * size,
                "write_bytes": writes * cells * size, "symbols": symbols}  # fmt: skip

    def variant(name, kernels):
        total = {key: sum(k[key] for k in kernels) for key in ("flops", "read_bytes", "write_bytes")}
        moved = total["read_bytes"] + total["write_bytes"]
        total |= {"intensity": total["flops"] / moved, "bound": "memory", "roofline_seconds": moved / 4e12}
        return {"name": name, "kernels": kernels, "total": total}

    fused = [kernel("norm", 8 if direction == "forward" else 14, tensors - 1, 1)]
    parts = [kernel("var_mean", 4, 1, 0), kernel("normalize", 2, 1, 1), kernel("affine", 2, 1, 1)]
    sizes = {"batch_size": 1, "seq_len": rows, "hidden_size": cols, "given": True}
    variants = [variant("reference", parts), variant("pytorch", fused), variant("evenkeel", fused)]
    head = {"evenkeel": VERSION, "op": op, "pass": direction, "dtype": dtype, "sizes": sizes}
    head["machine"] = {"name": "Sample GPU", "bytes_per_second": 4e12}
    return head | {"variants": variants}


def all_samples():
    made = {"cpu": bench("cpu"), "h200": bench("cuda"), "compare-cpu": compare("cpu"), "compare-h200": compare("cuda")}
    made |= {"machine-cpu": machine("cpu"), "machine-h200": machine("cuda"), "info-h200": info(), "quoted": quoted()}
    for op in ("layer_norm", "rms_norm"):
        for direction in ("forward", "backward"):
            for dtype in ("bf16", "f32"):
                made[f"explain-{op}-{direction}-{dtype}"] = explain(op, direction, dtype)
    return made


def write_samples(folder: pathlib.Path, names=None) -> list[pathlib.Path]:
    """The files of these names, all without any; their paths in order."""
    made = all_samples()
    paths = []
    for name in sorted(made if names is None else names):
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(json.dumps(made[name]))
    return paths
