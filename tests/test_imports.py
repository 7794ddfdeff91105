"""What importing loads, and the public names: each in the list is there."""

import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import interp

ROOT = Path(__file__).resolve().parent.parent


def test_importing_interp_is_free():
    heavy = ("torch", "transformer_lens", "numpy", "pandas", "scipy", "sklearn", "altair", "joblib")
    code = f"import sys, interp; dir(interp); print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


STATES = "lambda: (random.getstate(), numpy.random.get_state()[1:3], torch.get_rng_state())"


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "for package in (hooks, interp): print([getattr(package, name) for name in package.__all__], file=sys.stderr)",
        "from interp.known_answers import compile_program; compile_program('histogram', n=64)",
    ],
)
def test_loading_leaves_the_random_state_of_the_caller(step):
    """rich draws from Python's generator when it is imported, jax from NumPy's."""
    if "compile_program" in step:
        pytest.importorskip("tracr")
    before = f"import random, sys, numpy, torch; states = {STATES}; import hooks, interp; before = states()"
    code = f"{before}\n{step}\nprint(repr(states()) == repr(before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "True"


SLOW_PARTS_OF_SCIPY = ("scipy.stats", "scipy.optimize", "scipy.sparse", "scipy.spatial")
"""One second of CPU time together; distributions are also in scipy.special."""
RARELY_USED = ("pandas", "altair", "sklearn", "circuitsvis", "vl_convert", "transformers", "datasets", "tokenizers")


@pytest.mark.slow
def test_nothing_is_loaded_that_is_not_used():
    """Packages loaded after each step of one fresh process; TransformerLens loads pandas, transformers, datasets."""
    model = (
        "from hooks import Transformer; from interp.tasks import Lego; task = Lego(n_vars=2); "
        "net = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=1))"
    )
    verbs = (
        "print(interp.evaluate(net, task, n=20)); interp.classify_heads(net, task, n=20); "
        "interp.ablate_heads(net, task, n=20); interp.probe(net, task, n_train=50, n_test=50); "
        "interp.audit(net, task, n=64, at_chance=True)"
    )
    look = "import sys; print('\\nloaded', *[name for name in names if name in sys.modules])"
    ours = ("altair", "sklearn", "circuitsvis", "vl_convert", "transformer_lens.model_bridge", *SLOW_PARTS_OF_SCIPY)
    bridges = ("hooks.adapters.bridge", "hooks.adapters.huggingface", "hooks.adapters.huggingface.loading")
    code = f"names = {(*RARELY_USED, *ours, *bridges)!r}; "
    code += "; ".join(part for step in ("import hooks, interp", model, verbs) for part in (step, look))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert len(loaded) == 3
    assert not loaded[0] & set(RARELY_USED)
    assert not loaded[1] & {*ours, *bridges}
    assert not loaded[2] & {*ours, "hooks.adapters.huggingface.loading"}


def test_a_notebook_without_ipywidgets_shows_no_warning():
    """As in a kernel, which tqdm knows by these modules."""
    if find_spec("ipywidgets"):
        pytest.skip("ipywidgets is installed")
    kernel = "import sys, IPython; sys.modules['ipykernel'] = sys.modules['ipykernel.zmqshell'] = IPython; "
    shown = {}
    for imports in ("import tqdm.auto", "import hooks; import tqdm.auto"):
        process = subprocess.run([sys.executable, "-c", kernel + imports], capture_output=True, text=True, cwd=ROOT)
        assert process.returncode == 0
        shown[imports] = process.stderr
    assert "IProgress not found" in shown["import tqdm.auto"]
    assert shown["import hooks; import tqdm.auto"] == ""


def test_the_public_list_is_short_and_every_name_is_there():
    assert (
        len(interp.__all__) <= 46
    )  # fourteen functions, a package and a base class more than the 30 of the first list
    assert set(dir(interp)) == set(interp.__all__)
    for name in interp.__all__:
        assert getattr(interp, name) is not None
    with pytest.raises(AttributeError, match=r"^interp has no 'prob'\. Did you mean probe\?$"):
        _ = interp.prob


@pytest.mark.parametrize(
    "room", ["auditing", "comparison", "evaluation", "heads", "probing", "sweeps", "theory", "training"]
)
def test_every_name_of_a_package_is_there(room):
    package = getattr(interp, room)
    assert package.__all__
    for name in package.__all__:
        assert getattr(package, name) is not None


@pytest.mark.parametrize(
    ("package", "name", "words"),
    [
        ("hooks", "Transfomer", "hooks has no 'Transfomer'. Did you mean Transformer?"),
        ("interp.tasks", "Leg", "interp.tasks has no 'Leg'. Did you mean Lego?"),
        ("interp", "evaluat", "interp has no 'evaluat'. Did you mean evaluate?"),
        ("interp", "zzz", "interp has no 'zzz'. dir(interp) lists its names."),
    ],
)
def test_a_name_that_there_is_not_is_compared_with_the_others(package, name, words):
    module = importlib.import_module(package)
    with pytest.raises(AttributeError) as error:
        getattr(module, name)
    assert str(error.value) == words
    assert not hasattr(module, name)
