import os
import shutil

# Before torch is loaded: what the tests start (kernels, commands) inherits it, and two workers with two threads each on
# two cores wait for each other many times longer than they compute.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing leaves the machine

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """One torch thread: the same numbers everywhere, and no fight over cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser or os.environ.get("UNMYOPIC_NEEDS_BROWSER"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
