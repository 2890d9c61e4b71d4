"""RoPE tables: their bits against mpmath's, their frequencies against transformers'. SPDX-License-Identifier: MIT"""

import functools
import re

import ml_dtypes
import numpy as np
import pytest

from evenkeel import rope_tables
from evenkeel._rope_tables import inverse_frequencies
from processes import run_python
from reference import DTYPES

LENGTH, TRAINED = 16384, 4096  # of the longest sequence after scaling and before
SCALINGS = {
    "default": {},
    "linear": {"factor": 3.0},
    "ntk": {"factor": 4.0},
    "dynamic": {"factor": 2.0, "original_max_position_embeddings": TRAINED},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": TRAINED},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": TRAINED,
    },
}
SCALINGS = {name: {"rope_type": name, "rope_theta": 500000.0, **more} for name, more in SCALINGS.items()}
every_type = pytest.mark.parametrize("rope_type", SCALINGS)


def frequencies(dim, scaling=None, theta=None, length=0, longest=None, real=np.float64):
    return inverse_frequencies(dim, theta, scaling, length, longest, real)


def same(tables, expected):
    for table, other in zip(tables, expected, strict=True):
        assert table.dtype == other.dtype and table.shape == other.shape and table.tobytes() == other.tobytes()


def ulps_apart(a, b):
    """Of positive float32 numbers."""
    a, b = (np.asarray(x, np.float32).view(np.int32).astype(np.int64) for x in (a, b))
    return np.abs(a - b)


# ---- bits: the formulas of the papers with 40 digits ----


def exact_frequencies(mp, dim, scaling):
    """And the factor of cosines and sines."""
    theta, kind, factor = mp.mpf(scaling["rope_theta"]), scaling["rope_type"], mp.mpf(scaling.get("factor", 1))
    if kind == "ntk":
        theta *= factor ** (mp.mpf(dim) / (dim - 2))
    if kind == "dynamic":
        theta *= (factor * LENGTH / TRAINED - (factor - 1)) ** (mp.mpf(dim) / (dim - 2))
    plain = [theta ** (-mp.mpf(2 * i) / dim) for i in range(dim // 2)]
    if kind == "linear":
        return [w / factor for w in plain], 1
    rotations = [TRAINED * w / (2 * mp.pi) for w in plain]  # of a pair over the sequences of training
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = [(r - low) / (high - low) for r in rotations]
    elif kind == "yarn":
        low, high = (dim * mp.log(TRAINED / (2 * mp.pi * r)) / (2 * mp.log(theta)) for r in (32, 1))
        low, high = max(mp.floor(low), 0), min(mp.ceil(high), dim - 1)
        kept = [1 - (i - low) / (high - low) for i in range(dim // 2)]
    else:
        return plain, 1
    kept = [min(max(k, 0), 1) for k in kept]
    factors = zip(plain, kept, strict=True)
    return [w * k + w / factor * (1 - k) for w, k in factors], mp.log(factor) / 10 + 1 if kind == "yarn" else 1


@functools.cache
def exact_values(rope_type, dim, positions):
    """cos and sin, [positions][pairs], as numbers of mpmath."""
    mp = pytest.importorskip("mpmath").mp
    with mp.workdps(40):
        inv_freq, factor = exact_frequencies(mp, dim, SCALINGS[rope_type])
        return [[[f(p * w) * factor for w in inv_freq] for p in positions] for f in (mp.cos, mp.sin)]


def nearest(exact, dtype):
    """The number of that dtype that is nearest to one of mpmath."""
    mp, info = pytest.importorskip("mpmath").mp, ml_dtypes.finfo(dtype)
    with mp.workdps(40):
        exponent = max(mp.frexp(exact)[1] - 1, info.minexp)
        return float(mp.nint(mp.ldexp(exact, info.nmant - exponent)) * mp.ldexp(1, exponent - info.nmant))


POSITIONS = (0, 1, 2, 5, 77, 1000, 4095, 4096, 9999, 16383)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@every_type
def test_values_are_the_nearest_of_their_dtype(rope_type, dtype):
    tables = rope_tables(LENGTH, 32, scaling=SCALINGS[rope_type], dtype=DTYPES[dtype])
    for name, table, values in zip(("cos", "sin"), tables, exact_values(rope_type, 32, POSITIONS), strict=True):
        assert table.shape == (LENGTH, 16) and table.dtype == DTYPES[dtype]
        for position, row in zip(POSITIONS, values, strict=True):
            for i, exact in enumerate(row):
                value, expected = float(table[position, i]), nearest(exact, DTYPES[dtype])
                assert value == expected, f"{name} of {rope_type} at [{position}, {i}]: {value} is not {expected}"


@every_type
def test_values_in_float64_are_exact_up_to_the_rounding_of_the_angle(rope_type):
    tables = rope_tables(LENGTH, 32, scaling=SCALINGS[rope_type], dtype="float64")
    for table, values in zip(tables, exact_values(rope_type, 32, POSITIONS), strict=True):
        limit = 1e-15 * (1 + np.array(POSITIONS)[:, None])
        assert (np.abs(table[list(POSITIONS)] - np.array(values, np.float64)) < limit).all()


def test_bfloat16_is_not_rounded_to_float32_first():
    above_a_tie = 0.5 + 2.0**-9 + 2.0**-30  # in float32 it is the tie, which rounds down
    cos, sin = rope_tables(1, 2, offset=1, dtype="bfloat16", inv_freq=[np.arccos(above_a_tie)])
    assert float(cos[0, 0]) == 0.5 + 2.0**-8
    cos, sin = rope_tables(1, 2, offset=1, dtype="bfloat16", inv_freq=[-np.arcsin(above_a_tie)])
    assert float(sin[0, 0]) == -0.5 - 2.0**-8


# ---- arguments ----


def test_an_offset_gives_the_rows_of_a_longer_table():
    cos, sin = rope_tables(100, 16)
    same(rope_tables(30, 16, offset=70), (cos[70:], sin[70:]))
    position_ids = np.array([[5, 0, 99], [71, 5, 70]])
    for row, ids in zip(cos[position_ids], position_ids, strict=True):
        for values, position in zip(row, ids, strict=True):
            assert (rope_tables(1, 16, offset=position)[0] == values).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_full_table_has_both_halves(dtype):
    halves = rope_tables(9, 12, dtype=DTYPES[dtype])
    assert halves[0].shape == (9, 6)
    same(rope_tables(9, 12, dtype=DTYPES[dtype], full=True), [np.concatenate((t, t), 1) for t in halves])


def test_dtypes_are_objects_or_names_and_float32_without_one():
    assert rope_tables(2, 4)[0].dtype == rope_tables(2, 4, dtype=None)[1].dtype == np.float32
    for dtype in ("bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert rope_tables(2, 4, dtype=dtype)[0].dtype == ml_dtypes.bfloat16
    torch = pytest.importorskip("torch")
    assert rope_tables(2, 4, dtype=torch.float64)[1].dtype == np.float64


def test_a_table_may_be_empty_and_far_away():
    assert rope_tables(0, 8)[0].shape == (0, 4) and rope_tables(0, 8, full=True)[1].shape == (0, 8)
    assert rope_tables(1, 2, offset=2**53 - 1, dtype="float64")[0][0, 0] == np.cos(2.0**53 - 1)


def test_theta_is_the_argument_or_that_of_scaling_or_10000():
    tables = rope_tables(50, 8, theta=500000)
    same(tables, rope_tables(50, 8, scaling={"rope_theta": 500000.0}))
    same(tables, rope_tables(50, 8, theta=np.float32(500000), scaling={"rope_theta": 3.0}))
    same(rope_tables(50, 8), rope_tables(50, 8, theta=10000.0))
    assert (tables[0] != rope_tables(50, 8)[0]).any()


def test_scaling_has_old_names_and_keys_that_are_none():
    new = {"rope_type": "linear", "factor": 2.0}
    for old in ({"type": "linear"}, {"type": "linear", "rope_type": None, "rope_theta": None}):
        same(rope_tables(9, 8, scaling=new), rope_tables(9, 8, scaling={**old, "factor": 2}))


@pytest.mark.parametrize("rope_type", ["dynamic", "yarn", "llama3"])
def test_max_position_embeddings_replaces_a_missing_original_length(rope_type):
    scaling = dict(SCALINGS[rope_type])
    expected = frequencies(64, scaling, length=LENGTH)[0]
    del scaling["original_max_position_embeddings"]
    assert (frequencies(64, scaling, length=LENGTH, longest=TRAINED)[0] == expected).all()
    assert (frequencies(64, scaling, length=LENGTH, longest=TRAINED // 2)[0] != expected).any()


def test_max_position_embeddings_comes_first_for_dynamic_alone():
    for rope_type, is_used in (("dynamic", True), ("yarn", False), ("llama3", False)):
        scaling = SCALINGS[rope_type]
        result, _ = frequencies(64, scaling, length=LENGTH, longest=TRAINED // 2)
        expected = {**scaling, "original_max_position_embeddings": TRAINED // 2} if is_used else scaling
        assert (result == frequencies(64, expected, length=LENGTH)[0]).all()


def test_dynamic_scales_sequences_that_are_longer_than_those_of_training():
    scaling = SCALINGS["dynamic"]
    same(rope_tables(TRAINED, 8, scaling=scaling), rope_tables(TRAINED, 8, theta=500000))
    uneven = {**scaling, "factor": 2.1}  # 2.1 - 1.1 is not 1 in float32
    assert (
        frequencies(64, uneven, length=TRAINED, real=np.float32)[0] == frequencies(64, theta=5e5, real=np.float32)[0]
    ).all()
    longer, _ = rope_tables(TRAINED + 1, 8, scaling=scaling)
    assert (longer[:TRAINED] != rope_tables(TRAINED, 8, theta=500000)[0]).any()
    same(
        rope_tables(1, 8, scaling=scaling, offset=TRAINED),
        [t[-1:] for t in rope_tables(TRAINED + 1, 8, scaling=scaling)],
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 0.1 * np.log(4) + 1),
        ({"attention_factor": 0.75}, 0.75),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, (0.2 * np.log(4) + 1) / (0.1 * np.log(4) + 1)),
        ({"mscale": 2.0, "mscale_all_dim": 0}, 0.1 * np.log(4) + 1),
        ({"factor": 0.5}, 1.0),
    ],
)
def test_yarn_multiplies_by_an_attention_factor(more, expected):
    scaling = {**SCALINGS["yarn"], **more}
    assert frequencies(64, scaling)[1] == pytest.approx(expected, rel=1e-15)
    cos, sin = rope_tables(1, 8, scaling=scaling, dtype="float64")
    assert (cos == pytest.approx(expected, rel=1e-15)) and not sin.any()
    inv_freq = [1.0, 0.5, 0.25, 0.125]
    assert rope_tables(1, 8, scaling=scaling, inv_freq=inv_freq, dtype="float64")[0] == pytest.approx(cos)


def test_frequencies_that_are_given_replace_those_of_theta():
    inv_freq = np.array([1.0, 0.3, 0.01])
    cos, sin = rope_tables(200, 6, inv_freq=inv_freq, theta=77.0, dtype="float64")
    angles = np.arange(200)[:, None] * inv_freq
    same((cos, sin), (np.cos(angles), np.sin(angles)))


def test_like_transformers_multiplies_in_float32():
    inv_freq = np.float32(0.1)
    angles = (np.arange(10**6, 10**6 + 50).astype(np.float32) * inv_freq).astype(np.float64)
    cos, sin = rope_tables(50, 2, offset=10**6, inv_freq=[inv_freq], like="transformers")
    same((cos[:, 0], sin[:, 0]), [f(angles).astype(np.float32) for f in (np.cos, np.sin)])
    assert (cos != rope_tables(50, 2, offset=10**6, inv_freq=[inv_freq])[0]).mean() > 0.9


def test_numpy_is_imported_with_the_first_table():
    source = "import sys, evenkeel; before = 'numpy' in sys.modules; evenkeel.rope_tables(1, 2); print(before)"
    assert run_python(source) == "False"


# ---- transformers ----


@pytest.fixture(scope="module")
def rotary():
    """The function that makes a model's rotary embedding of rope_parameters."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5.0")
    from transformers.models.llama.modeling_llama import LlamaConfig, LlamaRotaryEmbedding

    def make(dim, scaling):
        longest = TRAINED if scaling["rope_type"] == "dynamic" else LENGTH
        sizes = {"hidden_size": 4 * dim, "num_attention_heads": 4, "max_position_embeddings": longest}
        return LlamaRotaryEmbedding(LlamaConfig(head_dim=dim, rope_parameters=dict(scaling), **sizes))

    return make


def of_transformers(rope_type, **more):
    """A scaling that it has too: its dynamic has no original length."""
    scaling = {**SCALINGS[rope_type], **more}
    if rope_type == "dynamic":
        del scaling["original_max_position_embeddings"]
    return scaling


MODELS = [
    *((dim, of_transformers(name)) for dim in (64, 80, 128) for name in SCALINGS if name != "ntk"),
    (128, of_transformers("default", rope_theta=10000.0)),
    (128, of_transformers("linear", rope_theta=10000.0, factor=8.0)),
    (128, of_transformers("dynamic", rope_theta=10000.0, factor=2.5)),
    (128, of_transformers("llama3", factor=32.0)),
    (96, of_transformers("llama3", rope_theta=1000000.0)),
    (64, of_transformers("yarn", rope_theta=150000.0, factor=32.0, truncate=False)),
    (64, of_transformers("yarn", rope_theta=10000.0, original_max_position_embeddings=2**17)),  # high is above dim/2
    (64, of_transformers("yarn", rope_theta=10000.0, original_max_position_embeddings=128)),  # low is below 0
    (64, of_transformers("yarn", rope_theta=10000.0, original_max_position_embeddings=6)),  # low and high are 0
    (64, of_transformers("yarn", beta_fast=4, beta_slow=4, truncate=False)),  # low is high
    (64, of_transformers("yarn", factor=40.0, beta_fast=16, beta_slow=2, mscale=1.0, mscale_all_dim=0.7)),
]


every_model = pytest.mark.parametrize(("dim", "scaling"), MODELS, ids=lambda x: x if type(x) is int else x["rope_type"])


@every_model
def test_frequencies_are_those_of_transformers(rotary, dim, scaling):
    """Its powers differ from the nearest float32 by up to one ulp, which later divisions can make two."""
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    model = rotary(dim, scaling)
    length = LENGTH - 383
    model(torch.empty(1), torch.arange(length)[None])
    arguments = dim, scaling, None, length, model.config.max_position_embeddings
    result, factor = frequencies(*arguments, np.float32)
    apart = ulps_apart(result, model.inv_freq)
    assert result.dtype == np.float32 and apart.max() <= 2 and (apart > 0).sum() <= 2 + dim // 64
    assert factor == model.attention_scaling
    exact, factor = frequencies(*arguments)
    assert factor == model.attention_scaling and np.allclose(exact, model.inv_freq, rtol=1e-5, atol=0)
    if scaling["rope_type"] in ROPE_INIT_FUNCTIONS:
        expected, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](model.config, seq_len=length)
        assert ulps_apart(result, expected).max() <= 2 and factor == model.attention_scaling


@every_model
def test_tables_are_those_of_transformers(rotary, dim, scaling):
    import torch

    model, length = rotary(dim, scaling), 5000
    longest = model.config.max_position_embeddings
    ids = torch.arange(length)[None]
    for dtype in (torch.float32, torch.bfloat16):
        expected = [t[0].double().numpy() for t in model(torch.empty(1, dtype=dtype), ids)]
        more = {"scaling": model.config.rope_parameters, "max_position_embeddings": longest, "dtype": dtype}
        own = rope_tables(length, dim, **more, inv_freq=model.inv_freq, full=True, like="transformers")
        near = rope_tables(length, dim, **more, full=True, like="transformers")
        for table, other, exact in zip(own, near, expected, strict=True):
            assert table.shape == exact.shape
            ulp = np.spacing(np.abs(table.astype(np.float32))) * (1 if dtype == torch.float32 else 2**16)
            apart = np.abs(table.astype(np.float64) - exact)
            assert (apart <= 2 * ulp).all() and (apart == 0).mean() > (0.8 if dtype == torch.float32 else 0.999)
            assert np.abs(other.astype(np.float64) - exact).max() < (2e-3 if dtype == torch.float32 else 1e-2)


# ---- what is refused ----


def tables(length=4, dim=8, **more):
    return lambda: rope_tables(length, dim, **more)


def scaled(rope_type, dim=8, **more):
    return tables(dim=dim, scaling={"rope_type": rope_type, **more})


LLAMA3 = {"factor": 8.0, "low_freq_factor": 4, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
KEYS = "rope_type, type, rope_theta"
REFUSED = {
    TypeError: {
        "length is 4.0; expected an integer": tables(4.0),
        "dim is '8'; expected an integer": tables(dim="8"),
        "offset is True; expected an integer": tables(offset=True),
        "max_position_embeddings is 1.5; expected an integer": tables(max_position_embeddings=1.5),
        'scaling["original_max_position_embeddings"] is 8192.0; expected an integer': scaled(
            **{"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 8192.0}
        ),
        "theta is '10000'; expected a number": tables(theta="10000"),
        'scaling["rope_theta"] is False; expected a number': tables(scaling={"rope_theta": False}),
        'scaling["factor"] is [2]; expected a number': scaled("linear", factor=[2]),
        "scaling is of type list; expected a dict such as config.rope_parameters": tables(scaling=["linear"]),
        "dtype is int32; expected float32, float16, bfloat16 or float64": tables(dtype="int32"),
        "inv_freq is of type str; expected an array: could not convert string to float: 'x'": tables(inv_freq="x"),
    },
    ValueError: {
        "length is -1; expected an integer of at least 0": tables(-1),
        "offset is -2; expected an integer of at least 0": tables(offset=-2),
        "dim is 0; expected an integer of at least 2": tables(dim=0),
        "dim is 7; expected an even number": tables(dim=7),
        "dim is 2; expected 4 or more for ntk": scaled("ntk", 2, factor=2.0),
        "dim is 2; expected 4 or more for dynamic": scaled("dynamic", 2, factor=2.0),
        f"offset + length is {2**53 + 1}; expected at most 2**53, to which float64 is exact": tables(
            2, offset=2**53 - 1
        ),
        "max_position_embeddings is 0; expected an integer of at least 1": tables(max_position_embeddings=0),
        "theta is 1.0; expected a finite number above 1": tables(theta=1.0),
        "theta is nan; expected a finite number above 1": tables(theta=float("nan")),
        f"theta is 1{'0' * 400}; expected a finite number above 1": tables(theta=10**400),
        'scaling["rope_theta"] is inf; expected a finite number above 1': tables(scaling={"rope_theta": float("inf")}),
        'scaling["factor"] is 0; expected a finite number above 0': scaled("ntk", factor=0),
        'scaling["mscale"] is -1.0; expected a finite number above 0': scaled(
            "yarn", factor=2.0, original_max_position_embeddings=64, mscale=-1.0, mscale_all_dim=1.0
        ),
        "rope_type is 'longrope'; expected default, linear, ntk, dynamic, yarn, llama3": scaled("longrope"),
        "rope_type is ['ntk']; expected default, linear, ntk, dynamic, yarn, llama3": scaled(["ntk"]),
        f"scaling has 'partial_rotary_factor', 'x'; default takes {KEYS}": scaled(
            "default", partial_rotary_factor=1, x=0
        ),
        f"scaling has 'Factor'; linear takes {KEYS}, factor": scaled("linear", Factor=2.0),
        "scaling has no factor; linear needs it": scaled("linear"),
        "scaling has no low_freq_factor; llama3 needs it": scaled("llama3", **{**LLAMA3, "low_freq_factor": None}),
        "scaling has no original_max_position_embeddings; yarn needs it, or max_position_embeddings": scaled(
            "yarn", factor=2.0
        ),
        'scaling["beta_fast"] is 0.5; expected at least beta_slow (1)': scaled(
            "yarn", factor=2.0, original_max_position_embeddings=64, beta_fast=0.5
        ),
        'scaling["high_freq_factor"] is 4; expected more than low_freq_factor (4)': scaled("llama3", **LLAMA3),
        "like is 'Transformers'; expected 'transformers' or None": tables(like="Transformers"),
        "inv_freq has shape (3,); expected (4,), half of dim": tables(inv_freq=[1.0, 2.0, 3.0]),
        "inv_freq is [ 1. nan]; expected finite numbers": tables(dim=4, inv_freq=[1.0, float("nan")]),
    },
}


@pytest.mark.parametrize(("exception", "words"), [(kind, words) for kind in REFUSED for words in REFUSED[kind]])
def test_refused(exception, words):
    with pytest.raises(exception, match=f"^{re.escape(words)}$"):
        REFUSED[exception][words]()
