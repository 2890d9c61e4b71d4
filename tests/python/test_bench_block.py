"""bench/block.py: what it measures and refuses, and how it tells kernels apart. No time is asserted.
SPDX-License-Identifier: MIT"""

import json
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "bench"
KERNELS = {
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT": "products",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>": "products",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float>": "products",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop": "attention",
    "void cudnn::fusion::compute_dot_do_o_specialized<true, 64, 8>": "attention",
    "void cudnn::fusion::convert_dq_to_16bits<__nv_bfloat16, false, 128>": "attention",
    "ek_rms_norm_backward_bf16_4096": "rest",
    "triton_poi_fused__scaled_dot_product_flash_attention_view_3": "rest",
    "triton_red_fused_add_native_layer_norm_backward_0": "rest",
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add>": "rest",
    "Memset (Device)": "rest",
}


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(BENCH / "block.py"), *arguments], capture_output=True, text=True)


@pytest.fixture
def block(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import block

    return block


def test_kernels_are_told_apart_by_their_names(block):
    assert {name: block.kind_of(name) for name in KERNELS} == KERNELS


def test_parts_are_milliseconds_and_launches_of_a_step(block):
    kernels = [("nvjet_a", 3000.0), ("flash_fwd", 500.0), ("ek_glu", 250.0), ("ek_glu", 250.0)]
    expected = {"products": 1.5, "attention": 0.25, "rest": 0.25, "kernels": 2.0}
    assert block.parts_of(kernels, 2) == expected


def test_a_kernel_counts_what_it_adds_to_the_time_in_which_the_gpu_works(block):
    kernels = [
        block.Kernel("waits for the product", 2.0, 13.0),  # as of a programmatic dependent launch
        block.Kernel("product", 0.0, 10.0),
        block.Kernel("inside", 3.0, 9.0),
        block.Kernel("after a gap", 20.0, 25.0),
    ]
    expected = [("product", 10.0), ("waits for the product", 3.0), ("inside", 0.0), ("after a gap", 5.0)]
    assert block.own_times(kernels) == expected and block.own_times([]) == []


def test_kernels_between_are_medians_a_step_over_the_profiles(block):
    profiles = [
        [("ek_glu", 6.0), ("flash_fwd", 50.0), ("ek_glu", 2.0), ("ek_rope", 10.0)],
        [("nvjet_a", 30.0), ("ek_glu", 1.0), ("ek_glu", 1.0), ("ek_rope", 100.0)],
        [("ek_glu", 10.0), ("ek_glu", 10.0), ("ek_rope", 2.0), ("Memset (Device)", 4.0)],
    ]
    assert block.between(profiles, 2) == [[5.0, 0.5, "ek_rope"], [4.0, 1.0, "ek_glu"], [0.0, 0.0, "Memset (Device)"]]
    assert block.between([], 2) == []


def test_a_profile_without_a_number_has_0_of_it(block):
    assert block.medians([{"a": 3.0, "b": 1.0}, {"a": 1.0}, {"a": 2.0}]) == {"a": 2.0, "b": 0.0}


def test_the_modes_are_profiled_by_turns(block, monkeypatch):
    order = []
    monkeypatch.setattr(block, "profiled", lambda step: order.append(step) or [(step, 1.0)])
    found = block.profiles_of({"evenkeel": "a", "eager": "b"})
    assert order == ["a", "b"] * block.PROFILES
    assert found == {"evenkeel": [[("a", 1.0)]] * block.PROFILES, "eager": [[("b", 1.0)]] * block.PROFILES}


def test_an_error_is_close_where_it_is_at_most_a_tenth_more_than_eager_pytorchs(block):
    def rows(error):
        return [{"mode": "evenkeel", "error": error}, {"mode": "eager", "error": 1.0}]

    assert block.is_close(rows(1.09)) and not block.is_close(rows(1.11))


@pytest.mark.slow
def test_both_orders_are_measured(tmp_path):
    file = tmp_path / "block.json"
    done = run("--device", "cpu", "--sizes", "2x16x64x4x96", "--dtype", "f32", "--rounds", "1", "--modes",
               "evenkeel,eager", "--json", str(file))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())["results"]
    assert [(row["order"], row["mode"]) for row in found] == [
        (order, mode) for order in ("reordered", "pre") for mode in ("evenkeel", "eager")
    ]
    assert all(row["error"] < 1e-5 and row["seconds"] > 0 for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["4x2048", "0x1x2x3x4", "axbxcxdxe"])
def test_a_size_that_is_none_is_refused(sizes):
    done = run("--sizes", sizes)
    assert done.returncode == 2 and "is not BATCHxSEQxD_MODELxHEADSxFFN" in done.stderr
