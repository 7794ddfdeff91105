"""How does a task start from a pretrained model? With its weights, and one row of its embedding per token."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hooks import EncoderConfig, FullyConnected, FullyConnectedConfig, Transformer, from_huggingface, make_model
from hooks.adapters.huggingface.loading import find_tokenizer
from hooks.model.architectures import Config
from interp.tasks import task_from
from interp.tasks.base import Task
from interp.training.run import RunFolder
from interp.training.token_rows import markers_of, rows_of


def pretrained(
    task: Task, source: Any, *, symbols: Mapping[str, str] | None = None, tokenizer: Any = None, seed: int = 0
) -> Transformer:
    """A model for a task that starts with the weights of a pretrained one, ready to train.

    Each token of the task becomes one row of the source's embedding, that of the same name
    (`interp.training.token_rows`); the first `task.n_ctx` positions stay. The read-out is new, drawn from `seed` as
    `hooks.make_model` draws it; everything else is the source's. Up to the read-out it computes what the source does.

    Args:
        task: What to learn.
        source: A `hooks.Transformer` or `Encoder`; a folder of a training run; a folder of a Hugging Face GPT-2, BERT
            or ALBERT, its name on the hub, or such a model in memory. Only a name uses the network.
        symbols: Token of the task to the token of the vocabulary that stands in its place: `{"=": "is"}`.
        tokenizer: What the source was pretrained with: a task's vocab, a `tokenizers.Tokenizer`, or a fast tokenizer of
            transformers. When left out the source's own: of a run its task's vocab.
        seed: Decides the read-out.

    Returns:
        A new model in evaluation mode, with the source's precision and device, an `Encoder` where the source is one
        (with a linear head and no pooler). Its config is `pretrained_config(task, source.cfg)`, its tokenizer the
        task's vocab.

    Raises:
        ValueError: no model, or one without attention; a run that did not finish; a source without a tokenizer, or
            whose tokenizer cannot be read; what `pretrained_config` and `interp.training.token_rows.rows_of` refuse.
        FileNotFoundError, ConnectionError: as `hooks.from_huggingface`.

    Source: LEGO (arXiv:2206.04301) Figure 6, BERT pretrained. Differs: rows and positions that the task does not use
    are left out. Token types stay, and all tokens are of the first.
    """
    model, own = _source(source, wants_tokenizer=tokenizer is None)
    cfg = pretrained_config(task, model.cfg)
    tokenizer = own if tokenizer is None else tokenizer
    if tokenizer is None:
        raise ValueError(
            "the source has no tokenizer; what its ids mean is not known. Give tokenizer=, the one that it was "
            "pretrained with: a task's vocab, a tokenizers.Tokenizer, or a fast tokenizer of transformers."
        )
    rows = rows_of(task, tokenizer, symbols=symbols, d_vocab=model.cfg.d_vocab)
    theirs = model.state_dict()
    ours: Transformer = make_model(cfg, seed=seed).to(dtype=model.W_E.dtype, device=model.W_E.device)
    with torch.no_grad():
        for name, tensor in ours.state_dict().items():
            if name == "embed.weight":
                tensor.copy_(theirs[name][rows])
            elif name == "positions.weight":
                tensor.copy_(theirs[name][: cfg.n_ctx])
            elif not name.startswith("unembed."):
                tensor.copy_(theirs[name])
    ours.tokenizer = task.vocab  # type: ignore[assignment]
    return ours.eval()


def pretrained_config(task: Task, cfg: Config) -> Any:
    """The config of a model for a task that starts from one with this config, without building it.

    Vocabulary and read-out are the task's, an encoder's head is linear and it has no pooler; the wiring, also whether a
    query sees later positions, stays. So does the length where positions are `linear`, since their formula holds it;
    else it is the task's. Pathways broadcast the task's markers in place of the source's.

    Args:
        task: What to learn.
        cfg: The source's config.

    Raises:
        ValueError: a fully connected network, frozen vectors of brackets, fewer positions than the task has, a head
            hard-coded to a token, which has another id in the task, or pathways for a task without markers.
    """
    if isinstance(cfg, FullyConnectedConfig):
        raise ValueError("the source is a fully connected network, which has no row per token; give a transformer.")
    if cfg.embedding is not None:
        raise ValueError(
            "the source has frozen vectors of bracket and depth in place of an embedding; give one that learned a "
            "vector per token."
        )
    if cfg.n_ctx < task.n_ctx:
        raise ValueError(
            f"the source has {cfg.n_ctx} positions; the task has sequences of {task.n_ctx}. Give a source with "
            f"more, or make the sequences shorter."
        )
    changed: dict[str, Any] = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out, "tied_embedding": False}
    if cfg.pathways is not None:
        changed["head_patterns"] = replace(cfg.pathways, **markers_of(task))
    elif any(pattern.token is not None for row in cfg.rows for pattern in row):
        raise ValueError(
            "the source has a head hard-coded to broadcast from one token, whose id means another in the task; give "
            "one without."
        )
    if cfg.positions != "linear":
        changed["n_ctx"] = task.n_ctx
    if isinstance(cfg, EncoderConfig):
        changed |= {"head": "linear", "pooler": False}
    return replace(cfg, **changed)


def _source(source: Any, *, wants_tokenizer: bool) -> tuple[Transformer, Any]:
    """The model, and the tokenizer that it brings, if that is wanted."""
    if isinstance(source, Transformer | FullyConnected):
        return source, source.tokenizer  # type: ignore[return-value]  # the second has no embedding: its config is refused
    if isinstance(source, torch.nn.Module):
        return from_huggingface(source), None
    if not isinstance(source, str | Path):
        raise ValueError(
            f"source is a {type(source).__name__}; give a model, the folder of a training run or of a Hugging Face "
            f"model, or a hub name."
        )
    path = Path(source).expanduser()
    files = RunFolder(path)
    if files.manifest_path.exists():
        manifest = files.read_manifest()
        return files.load_model(), task_from(manifest["task"]).vocab if wants_tokenizer else None
    model = from_huggingface(source, with_tokenizer=False)
    if not wants_tokenizer:
        return model, None
    try:
        return model, find_tokenizer(path if path.exists() else source)
    except FileNotFoundError:
        return model, None
