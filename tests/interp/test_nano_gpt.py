"""nanoGPT as it is: trained on in-context lookup with its own loop, probed, labelled, audited, reported."""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace

import nano_gpt
import pytest
import torch

PROGRAM = """
import torch
import hooks
import interp
from model import GPT, GPTConfig

task = interp.tasks.InContextLookup(n_pairs=3, n_keys=8, n_values=8)
config = GPTConfig(block_size=task.n_ctx, vocab_size=task.d_vocab, n_layer=2, n_head=2, n_embd=64)
gpt = GPT(config)
optimiser = torch.optim.AdamW(gpt.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(0)
for step in range(steps):
    batch = task.sample(128, generator=generator)
    loss = task.loss(gpt(batch.tokens, batch.tokens)[0], batch)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

all_logits = lambda gpt, tokens: gpt(tokens, tokens)[0][..., : task.d_vocab_out]
names = {"layers": "transformer.h", "attention": "attn", "d_vocab": task.d_vocab, "n_ctx": task.n_ctx}
model = hooks.from_module(gpt, **names, untrained=lambda: GPT(config), forward=all_logits)
print(model.capabilities)
probes = interp.probe(model, task)
heads = interp.classify_heads(model, task)
audited = interp.audit(model, task, at_chance=True)
shown = interp.auditing.show_heads(model, task, audited, probes=probes)
interp.report_run(model, task, "report.html", results=[shown, audited, probes, heads])
"""


def run(steps, tmp_path, monkeypatch):
    """Run the program; the module `model` is a copy of nanoGPT's file at UNMYOPIC_NANOGPT, or our own of its kind."""
    module = nano_gpt
    if path := os.environ.get("UNMYOPIC_NANOGPT"):
        spec = spec_from_file_location("model", path)
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "model", module)
        spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "model", module)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"steps": steps}
    exec(PROGRAM, names)
    return SimpleNamespace(**names, page=(tmp_path / "report.html").read_text())


def test_the_program_is_short():
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 25


@pytest.mark.slow
def test_an_untrained_one_runs_through_everything(tmp_path, monkeypatch, capsys):
    result = run(1, tmp_path, monkeypatch)
    n_parameters = sum(weight.numel() for weight in result.gpt.parameters())
    assert n_parameters > 50_000
    assert f"{n_parameters:,} parameters" in result.page
    assert "The model is a transformer (GPT) with 2 layers and 2 heads per layer, on in-context lookup." in result.page
    assert result.page.index("What each head does") < result.page.index("Accuracy per target")
    printed = capsys.readouterr().out
    assert "causal attention; " in printed
    assert " verbs accept this model, but not:" in printed
    assert printed.count("number of parameters") == 1  # not for each untrained copy
    assert result.heads.heads("induction") == ()


@pytest.mark.slow
def test_a_trained_one_looks_up_by_an_induction_head(tmp_path, monkeypatch):
    result = run(600, tmp_path, monkeypatch)
    assert result.loss < 0.1
    assert result.probes.accuracy[-1].min() > 0.9
    assert result.heads.heads("induction")
    verdicts = {(head.layer, head.head): head.verdict for head in result.audited.heads}
    assert {verdicts[head] for head in result.heads.heads("induction")} <= {"faithful", "redundant"}
