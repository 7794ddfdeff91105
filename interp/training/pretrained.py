"""Models for a task that start from pretrained weights, with one embedding row per task token."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hooks import EncoderConfig, TransformerStack, from_huggingface, make_model
from hooks.adapters.huggingface.loading import config_of_folder, find_tokenizer
from hooks.files import user_path
from hooks.model.architectures import Config, Model, config_from_dict
from hooks.model.baseline import BaselineConfig
from hooks.model.layers import Linear
from hooks.typed import checks_types
from interp.core.heads import check_heads
from interp.tasks import task_from
from interp.tasks.base import Task
from interp.training.fitted_read_out import fit_read_out
from interp.training.folder import RunFolder
from interp.training.packaged import PACKAGED, packaged_folder
from interp.training.token_rows import markers_of, rows_of

Readout = Literal["new", "fitted"]
"""Where the read-out of a pretrained model comes from."""


@checks_types
def pretrained(
    task: Task,
    source: Any,
    *,
    symbols: Mapping[str, str] | None = None,
    tokenizer: Any = None,
    fresh_heads: Sequence[tuple[int, int]] = (),
    readout: Readout = "new",
    seed: int = 0,
) -> TransformerStack:
    """Build a model for a task from the weights of a pretrained model.

    Each task token has the embedding row of the source's token of the same name (`interp.training.token_rows`); of
    learned positions the first `task.n_ctx` are kept. The read-out is new, initialised from `seed` as in
    `hooks.make_model`, or fitted on the task. All other weights are the source's, so activations before the read-out
    are the source's.

    Args:
        task: The task to learn.
        source: A `hooks.Transformer` or `Encoder`; the folder of a training run; `minilm`, whose weights are in the
            extra `pretrained`; the folder of a Hugging Face GPT-2, BERT or ALBERT, its name on the hub, or such a model
            in memory. Only a name on the hub needs network access.
        symbols: Replacements, from task token to vocabulary token: `{"=": "is"}`.
        tokenizer: Tokenizer of the pretrained model: a task's vocab, a `tokenizers.Tokenizer`, or a fast tokenizer of
            transformers. Default: the source's tokenizer; for a run, the vocab of its task.
        fresh_heads: Heads, (layer, head), that are initialised instead, to see what they contribute. With tied layers,
            a head is the same one in all of them.
        readout: `new`: with random weights, to be trained. `fitted`: a logistic regression on what the frozen model
            gives at the scored targets of 2,000 training examples, so that its answers can be evaluated, ablated and
            audited; `model.read_out_fit` says how, and so does the manifest of a run that starts from it.
        seed: Seed of the read-out and of fresh heads.

    Returns:
        A new model in evaluation mode with the source's precision and device; an `Encoder` (with a linear head and no
        pooler) if the source is one. Its config is `pretrained_config(task, source.cfg)`, its tokenizer the task's
        vocab.

    Raises:
        ValueError: an object that is no model, a model without attention, an unfinished run, a source without a
            tokenizer or with an unreadable one, a fresh head that the model does not have, or an error of
            `pretrained_config` or `interp.training.token_rows.rows_of`.
        FileNotFoundError, ConnectionError: as `hooks.from_huggingface`.

    Example:
        >>> import hooks, interp
        >>> long, short = interp.tasks.Lego(n_vars=4), interp.tasks.Lego(n_vars=2)
        >>> source = hooks.make_model(interp.config_for(long, n_layers=1, d_model=16), seed=0)
        >>> interp.pretrained(short, source, tokenizer=long.vocab).cfg.n_ctx == short.n_ctx
        True

    Source: LEGO (arXiv:2206.04301) Figure 6, BERT pretrained. Differs: unused rows and positions are dropped. Token
    types are kept; all tokens are of the first type.
    """
    # The pretrained model, and a row of its embedding for each task token
    source_model, source_tokenizer = _source(source, wants_tokenizer=tokenizer is None)
    cfg = pretrained_config(task, source_model.cfg)
    tokenizer = source_tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        raise ValueError(
            "the source has no tokenizer, so its token ids cannot be matched. Give tokenizer=, the one that it was "
            "pretrained with: a task's vocab, a tokenizers.Tokenizer, or a fast tokenizer of transformers."
        )
    rows = rows_of(task, tokenizer, symbols=symbols, d_vocab=source_model.cfg.d_vocab)

    # A new model with these rows, the first positions, and all other weights but the read-out's
    embedding = source_model.W_E
    model: TransformerStack = make_model(cfg, seed=seed).to(dtype=embedding.dtype, device=embedding.device)
    if fresh_heads:
        check_heads("fresh_heads", fresh_heads, model)
    fresh_weights = [_head_weights(model, head) for head in fresh_heads]
    fresh_values = [[weight.clone() for weight in weights] for weights in fresh_weights]
    source_weights = source_model.state_dict()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name == "embed.weight":
                tensor.copy_(source_weights[name][rows])
            elif name == "positions.weight":
                tensor.copy_(source_weights[name][: cfg.n_ctx])
            elif not name.startswith("unembed."):
                tensor.copy_(source_weights[name])
        for weights, values in zip(fresh_weights, fresh_values, strict=True):
            for weight, value in zip(weights, values, strict=True):
                weight.copy_(value)
    model.tokenizer = task.vocab  # type: ignore[assignment]
    if readout == "fitted":
        model.read_out_fit = fit_read_out(model, task, seed=seed)  # type: ignore[assignment]
    return model.eval()


def _head_weights(model: TransformerStack, head: tuple[int, int]) -> list[Tensor]:
    """Views of the weights and biases of a head's queries, keys and values, and of its output weights."""
    layer, index = head
    attention = model.block(layer).attention
    maps = [attention.v, *([attention.q, attention.k] if attention.learned else [])]
    width = attention.v.weight.shape[0] // attention.n_heads
    rows = slice(index * width, (index + 1) * width)
    weights = [map_.weight.detach()[rows] for map_ in maps]
    weights += [map_.bias.detach()[rows] for map_ in maps if map_.bias is not None]
    if isinstance(attention.o, Linear):
        weights.append(attention.o.weight.detach()[:, rows])
    return weights


def pretrained_config(task: Task, cfg: Config) -> Any:
    """Config of the model that `interp.pretrained` builds for a task from a source with config `cfg`.

    Vocabulary and read-out are the task's; an encoder has a linear head and no pooler. The architecture, including
    causality, is the source's. `n_ctx` is the task's, or the source's if positions are `linear`, whose formula contains
    it. Pathways broadcast the task's markers.

    Raises:
        ValueError: a network without attention, frozen bracket vectors, fewer positions than the task needs, a head
            hard-coded to a token (ids differ in the task), or pathways for a task without markers.
    """
    if isinstance(cfg, BaselineConfig):
        raise ValueError(f"the source is a {cfg.kind}, which has no weights of a transformer; give a transformer.")
    if cfg.embedding is not None:
        raise ValueError(
            "the source has frozen vectors of bracket and depth instead of an embedding; give one with a learned "
            "embedding."
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
            "the source has a head hard-coded to broadcast from one token, whose id is another token in the task; "
            "give a source without."
        )
    if cfg.positions != "linear":
        changed["n_ctx"] = task.n_ctx
    if isinstance(cfg, EncoderConfig):
        changed |= {"head": "linear", "pooler": False}
    return replace(cfg, **changed)


def source_config(source: str | Path) -> Config:
    """Config of the model in a folder, or of packaged weights, as `interp.load` makes it; no weights are read.

    Args:
        source: The folder of a finished training run or of a Hugging Face model, or `minilm`.

    Raises:
        ValueError, FileNotFoundError, MissingExtra: as `interp.load`.
    """
    if source in PACKAGED:
        return config_of_folder(packaged_folder(str(source)))
    path = user_path(source)
    files = RunFolder(path)
    if files.manifest_path.exists():
        return config_from_dict(files.read_manifest()["config"])
    return config_of_folder(path)


def _source(source: Any, *, wants_tokenizer: bool) -> tuple[Any, Any]:
    """The model of a source, and its tokenizer if wanted. A baseline is returned too: its config is refused."""
    if isinstance(source, Model):
        return source, source.tokenizer
    if isinstance(source, torch.nn.Module):
        return from_huggingface(source), None
    if not isinstance(source, str | Path):
        raise ValueError(
            f"source is a {type(source).__name__}; give a model, the folder of a training run or of a Hugging Face "
            f"model, or a hub name."
        )
    # A folder of a training run or of a Hugging Face model, or a name on the hub
    if source in PACKAGED:
        source = packaged_folder(str(source))
    path = user_path(source)
    files = RunFolder(path)
    if files.manifest_path.exists():
        manifest = files.read_manifest()
        model = files.load_model()
        vocab = task_from(manifest["task"]).vocab if wants_tokenizer else None
        return model, vocab
    model = from_huggingface(source, with_tokenizer=False)
    if not wants_tokenizer:
        return model, None
    try:
        return model, find_tokenizer(path if path.exists() else source)
    except FileNotFoundError:
        return model, None
