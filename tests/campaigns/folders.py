"""Hostile Hugging Face folders: indices that name other files, configs that choose code, pickles, links."""

import json
import os
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers
from hostile import CODE
from tries import Try

from hooks import from_huggingface

PIECES = ["..", "/", "\\", "~", ".", "x.safetensors", "w.bin", "model", "\n", "\0", "%2e", " ", "a" * 300, "C:", "//"]
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings", "intermediate_size")
EVIL = "import os; open(os.environ['UNMYOPIC_LET_IN'], 'w').close()\nclass Evil: pass\n"


class Evil:
    """Leaves a file where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (EVIL,)


def write(folder: Path) -> None:
    """A small BERT, a pickle, and a Python module in one folder."""
    sizes = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=8, max_position_embeddings=8, pad_token_id=None)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    (folder / "w.bin").write_bytes(pickle.dumps(Evil()))
    (folder / "evil.py").write_text(EVIL)
    shutil.copy(folder / "model.safetensors", folder.parent / "x.safetensors")


def tries(n: int, folder: Path) -> Iterator[Try]:
    rng, path, mark = random.Random(0), folder / "model", folder / "let in"
    write(path)
    os.environ["UNMYOPIC_LET_IN"] = str(mark)
    whole = {one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}
    for index in range(n):
        for one in path.iterdir():
            one.unlink()
        for name, content in whole.items():
            (path / name).write_bytes(content)
        change = (_index, _pickle, _code, _link, _size)[index % 5]
        what, refused = change(path, rng)
        try:
            from_huggingface(path, with_tokenizer=False)
            error = ""
        except (ValueError, FileNotFoundError) as raised:
            error = str(raised)
        except Exception as raised:
            yield Try(what, "unclear", f"{type(raised).__name__}: {raised}")
            continue
        if mark.exists():
            mark.unlink()
            yield Try(what, "let in", "code of the folder was executed")
        elif refused and not error:
            yield Try(what, "let in", "loaded")
        elif len(error) > 800 or (error and not refused):
            yield Try(what, "unclear", error[:300])
        else:
            yield Try(what)


def _index(path: Path, rng: random.Random) -> tuple[str, bool]:
    """An index that names another file than one of this folder."""
    name = "".join(rng.choices(PIECES, k=rng.randrange(1, 5)))
    name = "../x.safetensors" if name == "x.safetensors" else name
    (path / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"cls.predictions.bias": name}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return f"an index that names {name[:40]!r}", True


def _pickle(path: Path, rng: random.Random) -> tuple[str, bool]:
    """Pickled weights under a name that transformers opens."""
    name = rng.choice(["pytorch_model.bin", "model.pt", "adapter_model.bin", "model.ckpt", "model.pkl"])
    (path / "w.bin").rename(path / name)
    (path / "model.safetensors").unlink()
    return f"pickled weights in {name}", True


def _code(path: Path, rng: random.Random) -> tuple[str, bool]:
    """Settings that choose code: the model is loaded without them."""
    config = json.loads((path / "config.json").read_text())
    chosen = rng.sample(list(CODE), rng.randrange(1, 4))
    (path / "config.json").write_text(json.dumps(config | {name: CODE[name] for name in chosen}))
    return f"a config with {', '.join(chosen)}", False


def _link(path: Path, rng: random.Random) -> tuple[str, bool]:
    """A file that is a link to outside the folder."""
    name = rng.choice(["config.json", "model.safetensors"])
    outside = path.parent / f"outside {name}"
    outside.unlink(missing_ok=True)
    (path / name).rename(outside)
    (path / name).symlink_to(rng.choice([outside, Path("..") / outside.name]))
    return f"{name} is a link to outside", True


def _size(path: Path, rng: random.Random) -> tuple[str, bool]:
    """A config of a much larger model than the weights are of."""
    config = json.loads((path / "config.json").read_text())
    name = rng.choice(SIZES)
    config[name] = rng.choice([10**5, 10**7, 10**9])
    (path / "config.json").write_text(json.dumps(config))
    return f"{name} is {config[name]}", True
