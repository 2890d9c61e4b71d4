"""evenkeel.torch.analyze: kernels, bytes and FLOPs against counts by hand, fusion, profiler events, the command."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import evenkeel.torch
from evenkeel import _core
from evenkeel.torch import analyze
from evenkeel.torch._analysis import record
from evenkeel.torch._analysis_fusion import fuse
from evenkeel.torch._analysis_kernel import Kernel, bytes_of
from evenkeel.torch._analysis_machine import H200, read_machine
from evenkeel.torch._analysis_measure import class_of, launches_of, summed
from evenkeel.torch._analysis_report import as_dict, measured_rows, readable

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = {"reordered": evenkeel.torch.ReorderedNormBlock, "pre": evenkeel.torch.PreNormBlock}


def made(module, *shape, step=False):
    return record(module, [torch.empty(shape, dtype=torch.bfloat16, device="meta")], step)


def parts(kernels):
    return [(k.name, k.flops, k.read_bytes, k.write_bytes) for k in kernels]


class FeedForward(nn.Module):
    """32 -> 64 -> 32 with a SiLU."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.up(x))) + x


def feed_forward():
    return FeedForward().bfloat16()


# ---- operations ----


def test_operations_are_the_count_by_hand():
    """6 rows; x has 384 bytes, the hidden tensor 768, the weights 4096 each."""
    assert parts(made(feed_forward(), 2, 3, 32)) == [
        ("addmm", 2 * 6 * 32 * 64, 384 + 4096 + 128, 768),
        ("silu", 4 * 6 * 64, 768, 768),
        ("mm", 2 * 6 * 64 * 32, 768 + 4096, 384),
        ("add", 6 * 32, 2 * 384, 384),
    ]


def test_backward_has_two_products_for_each_and_the_sum_of_a_bias():
    backward = [k for k in made(feed_forward(), 2, 3, 32, step=True) if k.phase == "backward"]
    assert sorted(k.name for k in backward) == ["add", "mm", "mm", "mm", "mm", "silu_backward", "sum"]
    assert sum(k.flops for k in backward if k.kind == "product") == 4 * 2 * 6 * 32 * 64
    assert [(k.read_bytes, k.write_bytes) for k in backward if k.name == "sum"] == [(768, 128)]


def test_a_view_is_no_kernel_and_an_expanded_tensor_has_few_bytes():
    class Views(nn.Module):
        def forward(self, x):
            return x.view(-1, 4).t()[1:].reshape(-1).detach()

    assert [k.name for k in made(Views(), 2, 8)] == ["clone"]  # reshape of what is transposed
    assert bytes_of(torch.empty(1, 4).expand(100, 4)) == 16


def test_attention_counts_the_pairs_of_tokens():
    class Attention(nn.Module):
        def __init__(self, causal):
            super().__init__()
            self.causal = causal

        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, is_causal=self.causal)

    for causal, pairs in ((False, 64), (True, 36)):
        kernels = made(Attention(causal), 2, 3, 8, 16)
        assert [k.kind for k in kernels] == ["attention"]
        assert kernels[0].flops == 2 * 2 * 16 * 2 * 3 * pairs


def test_the_module_stays_as_it_is():
    module = feed_forward()
    before = {name: p.clone() for name, p in module.named_parameters()}
    made(module, 2, 3, 32, step=True)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in module.named_parameters())


# ---- evenkeel's calls ----


def cost(op, **args):
    return [
        entry[2:] for entry in _core.cost(op, {"variant": 3, "device": 1, "batch_size": 1, "dtype": _core.BF16, **args})
    ]


@pytest.mark.parametrize("order", BLOCKS)
def test_a_block_has_its_launches(order):
    """One for each product, and 12 and 13 with q, k, v, gate and value apart."""
    kernels = made(BLOCKS[order](64, 4, 128, dtype=torch.bfloat16), 2, 16, 64)
    assert len(kernels) == {"reordered": 9, "pre": 10}[order]
    assert sum(k.kind == "product" for k in kernels) == 4
    assert sum(k.kind == "attention" for k in kernels) == 1
    assert len(kernels) + 3 == {"reordered": 12, "pre": 13}[order]


@pytest.mark.parametrize("order", BLOCKS)
def test_backward_of_a_block_has_no_additions_but_those_of_products(order):
    kernels = made(BLOCKS[order](64, 4, 128, dtype=torch.bfloat16), 2, 16, 64, step=True)
    backward = Counter(k.name for k in kernels if k.phase == "backward")
    assert backward["add"] == 0 and backward["addmm"] == {"reordered": 2, "pre": 0}[order]


def test_the_kernels_of_a_block_are_those_of_the_cost_model():
    kernels = made(BLOCKS["reordered"](64, 4, 128, kv_heads=2, dtype=torch.bfloat16), 2, 16, 64, step=True)

    def found(prefix, phase):
        return [
            k[1:] for k in parts(k for k in kernels if k.name.startswith(f"evenkeel.{prefix}/") and k.phase == phase)
        ]

    norm = {"norm": _core.LAYER_NORM, "seq_len": 32, "hidden_size": 64}
    assert found("norm", "forward")[:1] == [tuple(c) for c in cost("norm", **norm, **{"pass": 1, "with": 4 + 2})]
    assert found("norm", "backward")[:2] == [tuple(c) for c in cost("norm", **norm, **{"pass": 2, "with": 2})]
    glu = {"seq_len": 32, "ffn_size": 128, "activation": 2, "with": 16 + 32}
    assert found("glu", "forward") == [tuple(c) for c in cost("glu", **glu, **{"pass": 1})]
    of_v = {"seq_len": 32, "ffn_size": 32, "activation": 7, "with": 32}  # its gradient's copy, and that of its bias
    assert found("glu", "backward") == [
        *(tuple(c) for c in cost("glu", **glu, **{"pass": 2})),
        *(tuple(c) for c in cost("glu", **of_v, **{"pass": 2})),
    ]
    rope = {"batch_size": 2, "seq_len": 16, "heads": 4, "k_heads": 2, "head_dim": 16, "table_dtype": _core.F32}
    assert found("rope", "forward") == [tuple(c) for c in cost("rope", **rope, **{"pass": 1})]
    assert found("rope", "backward") == [tuple(c) for c in cost("rope", **rope, **{"pass": 2, "with": 32})]


def test_the_bias_of_the_last_product_of_a_pre_norm_block_is_a_sum_alone():
    kernels = made(BLOCKS["pre"](64, 4, 128, dtype=torch.bfloat16), 2, 16, 64, step=True)
    found = parts(k for k in kernels if k.name.startswith("evenkeel.glu/") and k.phase == "backward")
    of_down = {"seq_len": 32, "ffn_size": 64, "activation": 7, "with": 32, "absent": 16, "pass": 2}
    expected = [tuple(c) for c in cost("glu", **of_down)]
    assert [k[1:] for k in found[: len(expected)]] == expected
    assert expected[0][1] == 32 * 64 * 2  # bytes read: dy alone


def test_functions_are_counted_alone():
    class Activation(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))

        def forward(self, x):
            return evenkeel.torch.bias_act(x, self.bias, "relu_squared")

    forward, *backward = made(Activation(), 3, 8, step=True)
    assert (forward.name, forward.read_bytes, forward.write_bytes) == ("evenkeel.glu/forward", 48 + 16, 48)
    assert backward[0].name == "evenkeel.glu/backward_sums"


def test_the_cost_model_refuses_by_name():
    with pytest.raises(ValueError, match=r"op is 'softmax'; expected"):
        _core.cost("softmax", {})
    with pytest.raises(TypeError, match=r"'rows' is not a field of ek_cost_args"):
        _core.cost("norm", {"rows": 1})
    with pytest.raises(ValueError, match=r"activation \(0\) is not in"):
        _core.cost("glu", {"pass": 1, "variant": 3, "dtype": 1})
    with pytest.raises(TypeError, match=r"args is not a dict"):
        _core.cost("glu", 3)


# ---- torch.compile ----


def test_elementwise_operations_join_what_they_depend_on():
    fused = fuse(made(feed_forward(), 2, 3, 32))
    assert [k.name for k in fused] == ["addmm", "silu", "mm", "add"]

    class Chain(nn.Module):
        def forward(self, x):
            return torch.sigmoid(x * 2) + x

    (one,) = fuse(made(Chain(), 4, 8))
    assert one.name == "fused_mul_sigmoid_add"
    assert (one.flops, one.read_bytes, one.write_bytes) == (32 * (1 + 3 + 1), 64, 64)


@pytest.mark.parametrize("order", BLOCKS)
def test_the_fused_kernels_of_a_block_are_four(order):
    """RoPE of q and k in one, the norms with their residuals, SwiGLU; and with norms first the last addition."""
    fused = fuse(made(BLOCKS[order](64, 4, 128, fused=False, dtype=torch.bfloat16), 2, 16, 64))
    assert len(fused) == {"reordered": 9, "pre": 10}[order]
    assert sum(k.kind not in ("product", "attention") for k in fused) == {"reordered": 4, "pre": 5}[order]


def test_a_sum_over_rows_is_two_kernels():
    kernels = made(feed_forward(), 2, 3, 32, step=True)
    names = [k.name for k in fuse(kernels)]
    assert names.count("sum_of_partial_sums") == [k.name for k in kernels].count("sum") == 1


# ---- the profiler ----


def event(name, microseconds, device="CUDA"):
    return SimpleNamespace(name=name, device_type=f"DeviceType.{device}", self_device_time_total=microseconds)


def test_events_of_the_gpu_are_sorted_into_classes():
    events = [
        event("aten::mm", 50, device="CPU"),
        event("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", 40.0),
        event("void cutlass::Kernel2<cutlass_80_tensorop_bf16_gemm>", 20.0),
        event("void cublasLt::splitKreduce_kernel<32, 16>", 3.0),
        event("Memset (Device)", 1.0),
        event("void pytorch_flash::flash_fwd_kernel<...>", 30.0),
        event("ek_norm_forward_bf16_1024", 12.0),
        event("triton_poi_fused_mul_silu_0", 14.0),
        event("nothing", 0.0),
    ]
    launches = launches_of(events)
    assert [class_of(launch.name) for launch in launches] == [
        "product", "product", "apart", "apart", "attention", "other", "other"
    ]  # fmt: skip
    measured = summed(launches * 2, repeats=2)
    assert measured.launches == {"product": 2, "apart": 2, "attention": 1, "other": 2}
    assert measured.seconds["other"] == pytest.approx(26e-6)
    assert measured.total == pytest.approx(120e-6)


def test_older_events_have_a_range_of_time():
    old = SimpleNamespace(name="k", device_type="DeviceType.CUDA", time_range=SimpleNamespace(elapsed_us=lambda: 7.0))
    assert launches_of([old]) == [("k", 7e-6)]


# ---- the command ----


def report_of(*arguments):
    return analyze.analyze(analyze._parser().parse_args(arguments))


SMALL = ("--batch", "2", "--seq", "16", "--d-model", "64", "--heads", "4", "--ffn", "128")


def test_measured_times_stand_next_to_predicted_ones():
    report = report_of("--block", "pre", "--forward", *SMALL)
    report.variants[0].measured = summed(launches_of([event("ek_norm_forward", 2.0), event("Memset", 1.0)]), 1)
    shown = analyze.text(report)
    assert "Measured by torch.profiler" in shown
    rows = {row[1]: row for row in measured_rows(report)}
    predicted = report.seconds([k for k in report.variants[0].kernels if k.kind not in ("product", "attention")])
    assert rows["other"][5] == f"{predicted / 2e-6:.2f}"
    assert rows["apart"][3] == rows["apart"][5] == "-"


def test_json_has_the_schema_of_explain(capsys):
    assert analyze.main(["--block", "reordered", *SMALL, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [v["name"] for v in found["variants"]] == ["evenkeel", "torch.compile", "eager"]
    for variant in found["variants"]:
        total = {name: sum(k[name] for k in variant["kernels"]) for name in ("flops", "read_bytes", "write_bytes")}
        assert {name: variant["total"][name] for name in total} == total
        assert variant["total"]["bound"] in ("memory", "compute")
        assert variant["launches"]["all"] == len(variant["kernels"])
    assert found["variants"][0]["launches"]["forward_one_per_product"] == 12
    swiglu = next(k for k in found["variants"][0]["kernels"] if k["name"] == "evenkeel.glu/forward")
    assert swiglu["bound"] == "memory"


def test_text_and_markdown_have_a_line_for_each_kernel(capsys, tmp_path):
    report = report_of("--block", "pre", "--forward", *SMALL)
    count = sum(len(variant.kernels) for variant in report.variants)
    assert (
        analyze.main(["--block", "pre", "--forward", "--markdown", *SMALL, "--json", str(tmp_path / "out.json")]) == 0
    )
    assert capsys.readouterr().out.count("\n| `") == count
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(json.dumps(as_dict(report)))


def test_a_module_by_its_import_path(capsys, tmp_path, monkeypatch):
    (tmp_path / "some_layers.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert analyze.main(["some_layers:make", "--input", "3,8", "--dtype", "f32", "--forward"]) == 0
    assert "evenkeel.norm/forward" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a module as PACKAGE.MODULE:NAME, or --block"),
        (["torch.nn"], "torch.nn has no colon"),
        (["torch.nn:Nothing"], "Nothing"),
        (["torch:get_num_threads"], "made a int; expected a torch.nn.Module"),
        (["--block", "pre", "--heads", "3"], "heads (3) does not divide d_model (1024)"),
        (["--block", "pre", "--batch", "0"], "0 is not positive"),
        (["--block", "pre", "--machine", __file__], "is not a machine file"),
    ],
)
def test_bad_arguments_are_refused(arguments, words, capsys):
    with pytest.raises(SystemExit) as error:
        analyze.main(arguments)
    assert error.value.code == 2
    assert words in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        analyze.main(["torch.nn:Identity", "--input", "3,8", "--json", str(tmp_path / "none" / "report.json")])
    assert "report.json: No such file or directory" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        analyze.main(["--block", "pre", "--device", "cuda"])
    assert "PyTorch finds no CUDA device" in capsys.readouterr().err


def test_the_machine_is_the_measured_one():
    assert read_machine(str(ROOT / "docs" / "results" / "machine-h200.json")) == H200
    cpu = read_machine(str(ROOT / "docs" / "results" / "machine-cpu.json"))
    assert cpu.product_flops_per_second == cpu.flops_per_second
    fast = Kernel("a", "elementwise", 10, 10**9, 0)
    assert H200.bound(fast, 16) == "memory"
    assert H200.seconds(fast, 16) == pytest.approx(10**9 / 4.271e12)


def test_numbers_are_readable():
    assert [readable(n, "B") for n in (0, 999, 1000, 67108864, 1e12)] == ["0 B", "999 B", "1.0 kB", "67.1 MB", "1.0 TB"]
