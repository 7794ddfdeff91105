import os

# Set before torch is loaded and inherited by subprocesses: with two workers on two cores, two threads each are many
# times slower than one.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # no network access

import hypothesis
import jaxtyping
import pytest
import torch
from browser import Browser, chromium

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy machine is slow, not wrong
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def one_thread():
    """One torch thread, for the same results everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items):
    if chromium() or os.environ.get("UNMYOPIC_NEEDS_BROWSER"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium without a network."""
    process = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield process
    process.close()


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def as_a_user():
    """Turn off the checks of shape and choice annotations, which users do not have, to test our own errors."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
