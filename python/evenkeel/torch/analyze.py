"""python -m evenkeel.torch.analyze: what a module launches, kernel by kernel, and what bounds each of them.

For evenkeel, torch.compile and eager PyTorch next to each other: loads, stores, FLOPs, arithmetic intensity, whether
memory or compute bounds the kernel, and the least time on a machine. With --device cuda also the measured times.

    python -m evenkeel.torch.analyze --block reordered --batch 4 --seq 2048 --d-model 1024 --heads 16 --ffn 4096
    python -m evenkeel.torch.analyze --block pre --forward --markdown
    python -m evenkeel.torch.analyze my_package.models:make_layer --batch 2 --seq 1024 --d-model 768 --json -
    python -m evenkeel.torch.analyze --block pre --device cuda          measured, too

A module is given as PACKAGE.MODULE:NAME, where NAME is a class or function that makes one without arguments, or the
module itself. It is called with one tensor, [batch, seq, d-model] or the shape of --input. Nothing is computed without
--device cuda: the module's operations run on tensors that have no memory.
SPDX-License-Identifier: MIT
"""

import argparse
import copy
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from evenkeel.torch import PreNormBlock, ReorderedNormBlock, replace
from evenkeel.torch._analysis import record
from evenkeel.torch._analysis_fusion import fuse
from evenkeel.torch._analysis_machine import read_machine
from evenkeel.torch._analysis_measure import measure
from evenkeel.torch._analysis_report import Report, Variant, as_json, markdown, text
from evenkeel.torch._block_options import FEEDFORWARDS

_BLOCKS: dict[str, Any] = {"reordered": ReorderedNormBlock, "pre": PreNormBlock}
_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
_ABOUT = {
    "evenkeel": "evenkeel's kernels, by its cost model, and PyTorch's around them",
    "torch.compile": "an estimate by the rules of inductor's fusion, of the operations of eager",
    "eager": "PyTorch's operations one by one",
}


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m evenkeel.torch.analyze",
        description=summary,
        epilog=rest.partition("SPDX")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("module", nargs="?", metavar="PACKAGE.MODULE:NAME", help="what makes the module; or --block")
    parser.add_argument("--block", choices=sorted(_BLOCKS), help="a block of evenkeel.torch with these sizes")
    for name, default, text_ in (
        ("batch", 4, "sequences"),
        ("seq", 2048, "tokens of a sequence"),
        ("d-model", 1024, "columns of the input"),
        ("heads", 16, "of a block: heads of queries"),
        ("ffn", 4096, "of a block: columns of the feed-forward"),
    ):
        parser.add_argument(f"--{name}", type=_positive, default=default, metavar="N", help=f"{text_} ({default})")
    parser.add_argument(
        "--kv-heads", type=_positive, metavar="N", help="of a block: heads of keys and values (--heads)"
    )
    parser.add_argument("--head-dim", type=_positive, metavar="N", help="of a block (--d-model / --heads)")
    parser.add_argument("--norm", choices=("layer", "rms"), default="layer", help="of a block (layer)")
    parser.add_argument("--activation", default="swiglu", help="of a block (swiglu)")
    parser.add_argument("--bias", type=int, choices=(0, 1), default=1, help="of a block: biases in all products (1)")
    parser.add_argument("--input", metavar="N,N,…", help="another shape of the input, for a module")
    parser.add_argument("--dtype", choices=sorted(_DTYPES), default="bf16", help="of parameters and input (bf16)")
    parser.add_argument("--forward", action="store_true", help="forward alone, not a training step")
    parser.add_argument("--device", default="cpu", help="cuda: measure with torch.profiler, too (cpu: count alone)")
    parser.add_argument("--machine", default="h200", help="h200, or a file from `evenkeel info --measure FILE` (h200)")
    parser.add_argument("--json", metavar="FILE", help="write JSON; - is standard output")
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    return parser


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return number


def make_module(name: str) -> Module:
    """What PACKAGE.MODULE:NAME is, or makes."""
    path, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"{name} has no colon; expected PACKAGE.MODULE:NAME")
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the current folder, as `python -m` has them
    found: Any = importlib.import_module(path)
    for part in attribute.split("."):
        found = getattr(found, part)
    made = found if isinstance(found, Module) else found()
    if not isinstance(made, Module):
        raise TypeError(f"{name} made a {type(made).__name__}; expected a torch.nn.Module")
    return made


def _block(options: argparse.Namespace, **more: Any) -> Module:
    block: Module = _BLOCKS[options.block](
        options.d_model,
        options.heads,
        options.ffn,
        kv_heads=options.kv_heads,
        head_dim=options.head_dim,
        norm=options.norm,
        activation=options.activation,
        bias=bool(options.bias),
        **more,
    )
    return block


def _modules(options: argparse.Namespace, device: str) -> tuple[Module, Module]:
    """The module as PyTorch computes it, and as evenkeel does. On the CPU, where nothing is computed, a block is not
    initialized."""
    dtype = _DTYPES[options.dtype]
    if options.block:
        made: Any = {"dtype": dtype, "device": "meta" if device == "cpu" else device}
        blocks = _block(options, fused=False, **made), _block(options, **made)
        return (blocks[0].to_empty(device="cpu"), blocks[1].to_empty(device="cpu")) if device == "cpu" else blocks
    eager = make_module(options.module).to(device, dtype)
    ours = copy.deepcopy(eager)
    replace(ours, kinds=("layer_norm", "rms_norm", "rope", "glu"))
    return eager, ours


def _shape(options: argparse.Namespace) -> list[int]:
    if options.input is None:
        return [options.batch, options.seq, options.d_model]
    return [_positive(size) for size in options.input.split(",")]


def _sizes(options: argparse.Namespace) -> dict[str, Any]:
    if options.input is not None:
        return {"input": _shape(options)}
    names = ["batch", "seq", "d_model"]
    if options.block:
        names += ["heads", "kv_heads", "head_dim", "ffn"]
    sizes = {name: getattr(options, name) for name in names}
    if options.block:
        sizes["kv_heads"] = options.kv_heads or options.heads
        sizes["head_dim"] = options.head_dim or options.d_model // options.heads
    return sizes


def _measure(report: Report, options: argparse.Namespace) -> None:
    eager, ours = _modules(options, options.device)
    dtype = _DTYPES[options.dtype]
    given = [torch.randn(_shape(options), dtype=dtype, device=options.device, requires_grad=report.step)]
    modules = {"evenkeel": ours, "torch.compile": torch.compile(eager), "eager": eager}
    for variant in report.variants:
        variant.measured = measure(modules[variant.name], given, report.step)  # type: ignore[arg-type]


def analyze(options: argparse.Namespace) -> Report:
    """The report of what _parser has read."""
    eager, ours = _modules(options, "cpu")
    step, dtype = not options.forward, _DTYPES[options.dtype]
    inputs = [torch.empty(_shape(options), dtype=dtype, device="meta")]
    kernels = record(eager, inputs, step)
    counted = {"evenkeel": record(ours, inputs, step), "torch.compile": fuse(kernels), "eager": kernels}
    subject = f"block {options.block}" if options.block else options.module
    bits = torch.finfo(dtype).bits
    report = Report(subject, step, _sizes(options), options.dtype, bits, read_machine(options.machine))
    report.variants = [Variant(name, about, counted[name]) for name, about in _ABOUT.items()]
    if options.block:
        report.packed = 2 + FEEDFORWARDS[options.activation].is_gated
    if options.device != "cpu":
        _measure(report, options)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if bool(options.module) == bool(options.block):
        parser.error("give a module as PACKAGE.MODULE:NAME, or --block")
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: PyTorch finds no CUDA device; without it kernels are counted alone")
    try:
        report = analyze(options)
    except (ValueError, TypeError, ImportError, AttributeError, OSError, RuntimeError) as error:
        parser.error(str(error))
    if options.json == "-":
        sys.stdout.write(as_json(report))
        return 0
    sys.stdout.write((markdown if options.markdown else text)(report))
    if options.json:
        try:
            Path(options.json).write_text(as_json(report))
        except OSError as error:
            parser.error(f"--json {error.filename}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
