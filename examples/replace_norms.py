"""Replaces the norms of a Hugging Face model, checks that it still says the same, and puts them back.

The model is a small Llama with random weights, built from a config: nothing is downloaded. Needs `transformers`.
SPDX-License-Identifier: MIT
"""

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import evenkeel.torch

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=256,
)
model = LlamaForCausalLM(config)
original = copy.deepcopy(model)
tokens = torch.randint(config.vocab_size, (4, 256))

count = evenkeel.torch.replace(model)
print(f"{count} norms are evenkeel's now, such as {model.model.norm}")

# The same logits, the same gradients, to rounding.
losses = [m(tokens, labels=tokens).loss for m in (original, model)]
for loss in losses:
    loss.backward()
torch.testing.assert_close(losses[1], losses[0])
for ours, theirs in zip(model.parameters(), original.parameters(), strict=True):
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
print(f"loss {losses[0].item():.6f} before, {losses[1].item():.6f} after; the gradients agree too")

# What a step needs: the original norms keep their intermediate results for backward, evenkeel's x and a float a row.
for name, m in (("before", original), ("after", model)):
    print(f"memory {name}: {evenkeel.torch.memory_estimate(m, tokens)}")

print(f"{evenkeel.torch.restore(model)} restored: {type(model.model.norm)}")
