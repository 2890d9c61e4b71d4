"""The tables of Hugging Face's feed-forward layers and of its RoPE, against the sources of transformers.
SPDX-License-Identifier: MIT"""

import ast
import collections
import functools
import pathlib
import re

import pytest

from evenkeel.torch import _huggingface_glu, _huggingface_rope
from evenkeel.torch._rope_spec import NAME

HALVES = "x1 = x[..., :x.shape[-1] // 2]; x2 = x[..., x.shape[-1] // 2:]; return torch.cat((-x2, x1), dim=-1)"
FROM_HALF = "cos[..., :cos.shape[-1] // 2].repeat_interleave(2, dim=-1)"


def body_of(function):
    """The statements in one line, without documentation; hidden_states is x."""
    kept = [n for n in function.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return re.sub(r"\bhidden_states?\b", "x", "; ".join(map(ast.unparse, kept)))


@functools.cache
def modeling_files():
    """(name, syntax tree) of transformers' modeling files, of the version that the tables are made for."""
    transformers = pytest.importorskip("transformers")
    root = pathlib.Path(__file__).parents[2]
    pinned = re.search(r"^transformers==(\S+)", (root / "requirements.txt").read_text(), re.M).group(1)
    if transformers.__version__ != pinned:
        pytest.skip(f"transformers is {transformers.__version__}, the tables are of {pinned}")
    paths = sorted(pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py"))
    return [(path.stem.removeprefix("modeling_"), ast.parse(path.read_text())) for path in paths]


PRODUCT = r"self\.act_fn\(self\.gate_proj\(x\)\) \* self\.up_proj\(x\)"
MLPS = {  # the formulas of both large rows
    rf"(down_proj = self\.down_proj\({PRODUCT}\); return down_proj|return self\.down_proj\({PRODUCT}\))": "gate_proj",
    r"gate = self\.act_fn\(self\.gate_proj\(x\)\); return self\.down_proj\(gate \* self\.up_proj\(x\)\)": "gate_proj",
    r"up_states = self\.gate_up_proj\(x\); gate, up_states = up_states\.chunk\(2, dim=-1\); "
    r"up_states = up_states \* self\.activation_fn\(gate\); return self\.down_proj\(up_states\)": "gate_up_proj",
}


@pytest.mark.slow
def test_the_table_of_feed_forward_layers_has_the_classes_with_the_formulas_and_no_others():
    found, others = {}, set()
    for _, tree in modeling_files():
        for cls in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            forward = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "forward"]
            body = body_of(forward[0]) if forward else ""
            gate = next((gate for formula, gate in MLPS.items() if re.fullmatch(formula, body)), None)
            if gate is None:
                others.add(cls.name)
            else:
                found[cls.name] = gate
    table = _huggingface_glu.TABLE
    plain = {"gate_proj": table["LlamaMLP"], "gate_up_proj": table["Phi3MLP"]}
    assert not found.keys() & others  # a name stands for one formula
    assert {name: plain[gate] for name, gate in found.items()} == {
        n: s for n, s in table.items() if s in plain.values()
    }


def rope_of(tree):
    """(interleaved, dtype of the results) of a file's function; None where it computes something else."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    rope = functions.get(NAME)
    if rope is None or ast.unparse(rope.args) != "q, k, cos, sin, unsqueeze_dim=1" or "rotate_half" not in functions:
        return None
    body, half = body_of(rope), body_of(functions["rotate_half"])
    halves = (
        half == "x1 = x[..., :x.shape[-1] // 2]; x2 = x[..., x.shape[-1] // 2:]; return torch.cat((-x2, x1), dim=-1)"
    )
    pairs = half.endswith("return torch.stack((-x2, x1), dim=-1).flatten(-2)") and FROM_HALF in body
    if not (halves or pairs) or "q_len" in body:
        return None
    return pairs, "x" if "_type" in body or "original_dtype" in body else "promoted"


def tables_of(tree):
    """What the rotary embeddings of a file take cosines and sines of."""
    for cls in (node for node in tree.body if isinstance(node, ast.ClassDef) and "Rotary" in node.name):
        for forward in (n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "forward"):
            yield from re.findall("emb = ([^;]*)", body_of(forward)) or ["something else"]


@pytest.mark.slow
def test_the_table_of_rope_has_the_files_with_the_formulas_and_no_others():
    found = collections.defaultdict(set)
    for name, tree in modeling_files():
        formula, calls = (
            rope_of(tree),
            any(isinstance(n, ast.ClassDef) and f"{NAME}(" in ast.unparse(n) for n in tree.body),
        )
        if formula is not None and calls and set(tables_of(tree)) == {"torch.cat((freqs, freqs), dim=-1)"}:
            found[name].add(formula)
    table = {
        name: {(s.interleaved, s.result_dtype)} for name, s in _huggingface_rope.TABLE.items() if not s.has_half_tables
    }
    assert found == table
