"""A trainer that writes down every tensor it was given: tensors_trainer.py OUT OPTIONS(json). Rank r writes OUT.<r>.json.

It also trains on each batch, an embedding and a linear layer: what PyTorch takes as indices and targets is part of the claim.
"""

import json
import os
import sys

import odbd
import torch


def describe(batch):
    tensors = {
        name: {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "values": tensor.tolist(),
               "aligned": tensor.data_ptr() % 64 == 0}
        for name, tensor in batch.items()
    }
    step = batch.step
    return {"index": step.index, "idle": step.idle, "stand_in": step.is_stand_in, "ids": [list(i) for i in step.sample_ids],
            "padded_tokens": step.local.padded_tokens, "loss_tokens": step.local.loss_tokens, "loss_scale": step.loss_scale,
            "tensors": tensors}


def train(batch, vocabulary, embedding, head):
    """As causal models do: the logits at position i predict label i + 1."""
    logits = head(embedding(batch["input_ids"]))
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, vocabulary), batch["labels"][:, 1:].reshape(-1),
                                             reduction="sum")
    (loss * batch.step.loss_scale).backward()
    return float(loss.detach())


def main():
    out, options = sys.argv[1], json.loads(sys.argv[2])
    rank = int(os.environ["RANK"])
    vocabulary = options["vocabulary"]
    # All logits equal: each label that counts costs log(vocabulary), whatever it is.
    embedding = torch.nn.Embedding(vocabulary, 4)
    head = torch.nn.Linear(4, vocabulary)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    steps, probes = [], []
    with odbd.DataLoader(tensors="torch", timeout=100, connect_timeout=30) as loader:
        for batch in loader.probe():
            probes.append({"probe": batch.step.is_probe, **describe(batch)})
            train(batch, vocabulary, embedding, head)
        for batch in loader:
            steps.append(describe(batch))
            steps[-1]["loss"] = train(batch, vocabulary, embedding, head)
    with open("%s.%d.json" % (out, rank), "w", encoding="utf-8") as handle:
        json.dump({"rank": rank, "pad_token_id": loader.pad_token_id, "probes": probes, "steps": steps}, handle)


main()
