"""Trains a small language model of each transformer block, fused and not, on text that it makes, and plots the losses.

    python examples/train_block.py --quick              on the CPU, under a minute
    python examples/train_block.py --device cuda        larger, in bfloat16
    python examples/train_block.py --block pre-norm --steps 500 --plot losses.svg

The text is made of sentences of a small grammar, so a model learns its letters, then its words, then which words go
together. Fused and unfused models start from the same parameters and see the same text: their losses are the same to
rounding, and the time of a step shows what fusing gains. The plot needs matplotlib (pip install matplotlib).
SPDX-License-Identifier: MIT
"""

import argparse
import pathlib
import random
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import evenkeel.torch as ek

BLOCKS = {"reordered": ek.ReorderedNormBlock, "pre-norm": ek.PreNormBlock}
WORDS = {
    "who": "the keel|a sailor|the old ship|her captain|our crew",
    "does": "follows|carries|watches|remembers|steadies",
    "what": "the wind|a lantern|the long swell|every harbour|the tide",
    "where": "at dawn|under grey clouds|near the reef|all night|by the stars",
}


def text_of(sentences: int, seed: int = 0) -> str:
    chosen = random.Random(seed)
    choices = {part: words.split("|") for part, words in WORDS.items()}
    return "".join(" ".join(map(chosen.choice, choices.values())) + ".\n" for _ in range(sentences))


class Model(nn.Module):
    """Characters in, the logits of the next ones out."""

    def __init__(self, block: type[nn.Module], characters: int, options: argparse.Namespace, fused: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, options.width)
        sizes = options.width, options.heads, 4 * options.width
        self.blocks = nn.ModuleList(block(*sizes, fused=fused) for _ in range(options.layers))
        self.norm = ek.LayerNorm(options.width)
        self.head = nn.Linear(options.width, characters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(text: torch.Tensor, options: argparse.Namespace):
    """Windows of the text; the same ones each time."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(options.steps):
        starts = torch.randint(len(text) - options.seq - 1, (options.batch, 1), generator=generator)
        window = text[starts + torch.arange(options.seq + 1)].to(options.device)
        yield window[:, :-1], window[:, 1:]


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def train(name: str, fused: bool, text: torch.Tensor, characters: int, options: argparse.Namespace) -> list[float]:
    torch.manual_seed(0)
    model = Model(BLOCKS[name], characters, options, fused).to(options.device, options.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    losses, shown = [], f"{name:9} {'fused' if fused else 'unfused':7}"
    for step, (tokens, targets) in enumerate(batches(text, options)):
        if step == min(5, options.steps - 1):  # the first steps compile kernels and fill caches
            wait(options.device)
            start, first = time.perf_counter(), step
        loss = F.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % max(1, options.steps // 5) == 0 or step == options.steps - 1:
            print(f"{shown} step {step:4}  loss {loss.item():.4f}", flush=True)
    wait(options.device)
    seconds = (time.perf_counter() - start) / (options.steps - first)
    print(f"{shown} {seconds * 1e3:.1f} ms a step", flush=True)
    return torch.stack(losses).tolist()


def plot(curves: dict[tuple[str, bool], list[float]], path: pathlib.Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed; pip install matplotlib")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (name, fused), losses in curves.items():
        style = {"lw": 1.2} if fused else {"lw": 3.5, "alpha": 0.35}
        color = f"C{list(BLOCKS).index(name)}"
        axes.plot(losses, label=f"{name}, {'fused' if fused else 'unfused'}", color=color, **style)
    axes.set(xlabel="step", ylabel="loss (nats per character)", title="The same training, fused and not")
    axes.legend()
    figure.savefig(path, bbox_inches="tight")
    print(f"losses plotted to {path}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny model and 40 steps")
    parser.add_argument("--block", choices=BLOCKS, help="this one alone; by default both")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: float32, on a GPU bfloat16")
    parser.add_argument("--steps", type=int, help="of training (default: 300, quick 40)")
    parser.add_argument("--layers", type=int, help="blocks (default: 4, quick 2)")
    parser.add_argument("--width", type=int, help="d_model; the feed-forward layer has four times that (256, quick 64)")
    parser.add_argument("--heads", type=int, help="of attention (default: 4)")
    parser.add_argument("--batch", type=int, help="sequences in a step (default: 16, quick 8)")
    parser.add_argument("--seq", type=int, help="characters of a sequence (default: 128, quick 64)")
    parser.add_argument("--lr", type=float, default=1e-3, help="of AdamW (default: 1e-3)")
    parser.add_argument("--plot", type=pathlib.Path, default="train_block.png", help="PNG or SVG (train_block.png)")
    options = parser.parse_args()
    defaults = {"steps": (300, 40), "layers": (4, 2), "width": (256, 64), "heads": (4, 4), "batch": (16, 8)}
    defaults["seq"] = 128, 64
    for name, (full, quick) in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
        elif getattr(options, name) <= 0:
            parser.error(f"--{name}: {getattr(options, name)} is not a positive number")
    try:
        torch.empty(0, device=options.device)
    except (AssertionError, RuntimeError) as error:
        parser.error(f"--device: {options.device} cannot be used: {str(error).splitlines()[0]}")
    dtype = options.dtype or ("bfloat16" if options.device.startswith("cuda") else "float32")
    options.dtype = getattr(torch, dtype)
    return options


def main() -> int:
    options = parse()
    text = text_of(2000)
    alphabet = sorted(set(text))
    tokens = torch.tensor([alphabet.index(c) for c in text])
    print(f"{len(text)} characters of {len(alphabet)} kinds, such as {text.splitlines()[0]!r}")
    if options.seq >= len(tokens):
        sys.exit(f"--seq: {options.seq} characters are not fewer than those of the text")
    names = [options.block] if options.block else list(BLOCKS)
    curves = {}
    for name in names:
        for fused in (False, True):
            curves[name, fused] = train(name, fused, tokens, len(alphabet), options)
        pairs = zip(curves[name, True], curves[name, False], strict=True)
        print(f"{name:9} fused and unfused losses differ by at most {max(abs(a - b) for a, b in pairs):.1e}")
    plot(curves, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
