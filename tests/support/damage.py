"""Files of every kind that is read, ways to damage them, and what is wrong with the error."""

import json
import shutil
from pathlib import Path

import transformers
from packs import write_pack
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import interp
from case_studies.frame.stored import read_results
from hooks import from_huggingface, load_checkpoint, make_model
from interp.evaluation import EvaluationResult
from interp.known_answers import read_compiled
from interp.tasks import Corpus, Lego
from interp.training import TrainingRun

TASK = Lego(n_vars=2)
SETTINGS = interp.TrainSettings(steps=4, eval_every=2, checkpoint_every=2, n_eval=8)
VALUES = (None, "x", -1, 3.5, [], {}, True, [[1]], "9" * 400, 1e308, {"a": None})
SHIPPED = Path(__file__).parents[2] / "case_studies"


def damaged(content, rng):
    """Bits flipped, cut short, replaced, nested deeply, or another value at one place of a JSON document."""
    kind, data = rng.randrange(6), bytearray(content)
    if kind == 0:
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if kind == 1:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 2:
        return rng.randbytes(rng.randrange(50))
    if kind == 3:
        return b"[" * 100_000 if rng.random() < 0.5 else b'{"a":' * 50_000
    lines = content.split(b"\n") if content[:1] in b"{[" else []
    try:
        return json.dumps(swapped(json.loads(content), rng)).encode()
    except ValueError:
        pass
    try:
        at = rng.randrange(max(1, len(lines) - 1))
        return b"\n".join([*lines[:at], json.dumps(swapped(json.loads(lines[at]), rng)).encode(), *lines[at + 1 :]])
    except (ValueError, IndexError):
        at = rng.randrange(len(data))
        return bytes(data[:at]) + b"\0\0\0\0" + bytes(data[at + 4 :])


def swapped(value, rng):
    """A JSON value with one part replaced by a value of another type, or removed."""
    places = []

    def walk(one, path):
        places.append(path)
        for key, part in one.items() if isinstance(one, dict) else enumerate(one if isinstance(one, list) else ()):
            walk(part, [*path, key])

    walk(value, [])
    path = rng.choice(places)
    if not path:
        return rng.choice(VALUES)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if rng.random() < 0.3:
        del inner[path[-1]]
    else:
        inner[path[-1]] = rng.choice(VALUES)
    return value


def train(folder):
    return interp.train(make_model(interp.config_for(TASK, n_layers=1, d_model=16, n_heads=2), seed=1), TASK, SETTINGS,
                        seed=0, folder=folder)  # fmt: skip


def write_files(folder):
    """One file of every kind."""
    run = train(folder / "run")
    interp.evaluate(run.model, TASK, n=16).save(folder / "result.json")
    sizes = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=8, max_position_embeddings=8, pad_token_id=None)
    transformers.BertForMaskedLM(config).save_pretrained(folder / "bert")
    words = Tokenizer(WordLevel({word: at for at, word in enumerate(["[UNK]", *"abcdefg"])}, unk_token="[UNK]"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(folder / "bert")
    shutil.copytree(next(SHIPPED.glob("dyck/**/claims.json")).parent, folder / "claims")
    write_pack(folder, n=64, some=32)
    for name in "abc":
        (folder / "texts").mkdir(exist_ok=True)
        (folder / f"texts/{name}.txt").write_text(f"{name} words of a text\n" * 5)


LOADERS = {
    "run/manifest.json": lambda folder: TrainingRun.load(folder / "run").task,
    "run/metrics.jsonl": lambda folder: TrainingRun.load(folder / "run"),
    "run/model.safetensors": lambda folder: load_checkpoint(folder / "run/model.safetensors"),
    "result.json": lambda folder: EvaluationResult.load(folder / "result.json"),
    "bert/config.json": lambda folder: from_huggingface(folder / "bert"),
    "bert/model.safetensors": lambda folder: from_huggingface(folder / "bert"),
    "bert/tokenizer.json": lambda folder: from_huggingface(folder / "bert"),
    "bert/tokenizer_config.json": lambda folder: from_huggingface(folder / "bert"),
    "claims/claims.json": lambda folder: read_results(folder / "claims", "dyck"),
    "claims/details.json.xz": lambda folder: read_results(folder / "claims", "dyck"),
    "letters.json": lambda folder: read_compiled(folder / "letters"),
    "letters.npz": lambda folder: read_compiled(folder / "letters"),
    "texts/a.txt": lambda folder: Corpus.from_folder(folder / "texts"),
}


def fault_of(load, files, path):
    """Load damaged files: whether they are refused, and what is wrong with the error; empty if nothing is."""
    try:
        load(files)
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            return True, f"{type(error).__name__}: {text[:200]}"
        if path.name not in text and path.parent.name not in text:
            return True, f"names no file: {text[:200]}"
        return True, f"{len(text)} characters" if len(text) >= 800 else ""
    except BaseException as error:
        return True, f"{type(error).__name__}: {str(error)[:200]}"
    return False, ""
