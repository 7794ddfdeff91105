import gc
import os

# Set before torch is loaded and inherited by subprocesses: with two workers on two cores, two threads each are many
# times slower than one.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # no network access

import hypothesis
import jaxtyping
import pytest
import shapes
import torch
from browser import Browser, chromium
from durations import kinds_of, read_durations, write_durations

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy machine is slow, not wrong
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def one_thread():
    """One torch thread, for the same results everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_addoption(parser):
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.tsv")


class RecordDurations:
    """Adds up the seconds of every item, set-up included, and writes the record at the end.

    A run of all items writes the record anew; one of some items changes those that passed.
    """

    def __init__(self):
        self.seconds = {}
        self.passed = set()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus:
            print("\ntests/durations.tsv is as before: an item failed")
        elif runs_all(session.config, "not long") and chromium():
            write_durations(self.seconds)
        else:
            write_durations(read_durations() | {name: self.seconds[name] for name in self.passed})


def runs_all(config, marks):
    """Whether every item with these marks runs: no files, words or other marks were chosen on the command line."""
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS or config.option.keyword
    return not chosen and config.option.markexpr == marks


class CheckShapes:
    """Keeps the first fast item of each test and every marked one; fails if they do not reach every public function."""

    def __init__(self):
        self.reached = set()

    @pytest.hookimpl(trylast=True)  # after the choice by marks
    def pytest_collection_modifyitems(self, config, items):
        recorded = read_durations()
        marked = {item for item in items if item.get_closest_marker("shapes")}
        first_by_test = {}
        for item in items:
            if item.nodeid not in recorded:
                first_by_test.setdefault(item.nodeid.partition("[")[0], item)
        kept = marked | set(first_by_test.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        self.reached |= shapes.CALLED
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["reached"] = sorted(self.reached)
            return
        unreached = sorted(shapes.public_functions() - self.reached)
        if unreached and runs_all(session.config, "not slow and not long"):
            print(f"\nno fast item calls {', '.join(unreached)}: mark one that does with pytest.mark.shapes")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.reached |= set(getattr(node, "workeroutput", {}).get("reached", ()))


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--record-durations") and not is_worker:
        config.pluginmanager.register(RecordDurations())
    if config.getoption("--jaxtyping-packages"):
        config.pluginmanager.register(CheckShapes())


def pytest_ignore_collect(collection_path, config):
    """Folders without a default item are not imported by a default run."""
    is_default_run = config.option.markexpr == "not slow and not long"
    return True if is_default_run and collection_path.name in ("long", "campaigns") else None


@pytest.hookimpl(tryfirst=True)  # before the choice by marks
def pytest_collection_modifyitems(config, items):
    if not (config.getoption("--record-durations") and runs_all(config, "not long")):
        mark_by_duration(items)
    if chromium() or os.environ.get("UNMYOPIC_NEEDS_BROWSER"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


def mark_by_duration(items):
    """Mark items slow or long by their recorded durations, those aside that the pass for shapes needs."""
    kinds = kinds_of([item.nodeid for item in items], read_durations())
    for item in items:
        kind = kinds[item.nodeid]
        if kind and not item.get_closest_marker("shapes"):
            item.add_marker(kind)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imported modules and items stay; searching them for garbage again and again takes a twentieth of a run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium without a network."""
    process = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield process
    process.close()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder that the processes of this test run share; write to it under a `FileLock`."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


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
