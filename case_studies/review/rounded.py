"""Trained models with weights rounded to half precision in a bundle, and expanded when it is unpacked."""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hooks.model.checkpoint import read_tensors, tensor_bytes
from interp.training.folder import RunFolder
from interp.training.identity import HASHES

WEIGHTS = "model.safetensors"
ROUNDED_WEIGHTS = "model.half.safetensors"
"""Name of rounded weights in a bundle."""


def allows_rounding(entry: Mapping[str, Any]) -> bool:
    """Whether a stored claim may be measured again on rounded weights: its number has an interval.

    Rounding changes a weight by at most one part in 2,048, far less than seeds differ. A number without sampling error,
    such as a largest error, is compared digit by digit, so it needs the weights themselves.

    Args:
        entry: The claim in `claims.json`.
    """
    if entry["measured"] is None or entry["exact"]:
        return False
    low, high = entry["interval"]
    return low != high


def rounded_files(run: RunFolder) -> dict[str, bytes] | None:
    """Manifest and rounded weights of a trained model, by name; None if a weight is too large for half precision.

    The manifest has the hash of the weights as they will be expanded.
    """
    tensors, description = read_tensors(run.model_path, kind="model")
    rounded = {name: tensor.half() if tensor.dtype == torch.float32 else tensor for name, tensor in tensors.items()}
    if not all(tensor.isfinite().all() for tensor in rounded.values()):
        return None
    content = tensor_bytes(rounded, kind="model", description=description)
    manifest = run.read_manifest()
    digest = hashlib.sha256(_expanded(rounded, description)).hexdigest()
    manifest = manifest | {HASHES: manifest[HASHES] | {WEIGHTS: digest}}
    return {"manifest.json": json.dumps(manifest, indent=1).encode(), ROUNDED_WEIGHTS: content}


def expanded(content: bytes) -> bytes:
    """The file of a model in single precision, from that with rounded weights.

    Raises:
        ValueError: it is not such a file.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ROUNDED_WEIGHTS
        path.write_bytes(content)
        tensors, description = read_tensors(path, kind="model")
    return _expanded(tensors, description)


def _expanded(tensors: Mapping[str, Tensor], description: dict) -> bytes:
    single = {name: tensor.float() if tensor.dtype == torch.float16 else tensor for name, tensor in tensors.items()}
    return tensor_bytes(single, kind="model", description=description)
