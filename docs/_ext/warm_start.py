"""One process that has imported everything, and is forked for each notebook and each study's page.

Importing torch and the package takes longer than most notebooks. Sphinx starts the process (`start`); notebooks reach
it through a kernel specification, whose command is this file, and pages through `run`.
"""

import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SOCKET = "UNMYOPIC_WARM_START"
"""Environment variable with the address of the process."""
IMPORTS = ("interp.probing.probe", "interp.auditing.audit", "interp.training.train", "interp.reporting.report")
IMPORTS += ("interp.cli.main", "case_studies.study", "ipykernel.kernelapp", "altair", "pandas")
"""What is imported before the first fork; not vl_convert, whose threads a fork does not have."""


def start(folder: Path, imports: Sequence[str] = IMPORTS) -> subprocess.Popen:
    """Start the process, and make it the kernel of notebooks and what `run` uses. It imports when it is first asked."""
    address, here = str(folder / "socket"), str(Path(__file__).resolve())
    # Listen before anybody can ask
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        command = [sys.executable, here, "--serve", str(listener.fileno()), *imports]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
    specification = folder / "kernels/python3/kernel.json"
    specification.parent.mkdir(parents=True)
    argv = [sys.executable, here, "ipykernel.kernelapp:launch_new_instance", "-f", "{connection_file}"]
    kernel = {"argv": [*argv, "--log-level=ERROR"], "display_name": "Python 3", "language": "python"}
    specification.write_text(json.dumps({**kernel, "interrupt_mode": "message"}))
    os.environ[SOCKET] = address
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_PATH")]))
    return process


def run(function: str, *arguments: str) -> int:
    """Call `module:function` in a fork, with the arguments of a command line; its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[SOCKET])
        request = {"function": function, "arguments": arguments, "folder": str(Path.cwd())}
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = connection.makefile().readline()  # empty if the fork was killed
    return int(answer or 1)


def serve(listener: socket.socket, imports: Sequence[str]) -> None:
    """Fork for every request, until the process is terminated."""
    while True:
        connection, _ = listener.accept()
        with suppress(ChildProcessError):  # forks that have ended
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        for name in imports:
            importlib.import_module(name)
        if os.fork():
            connection.close()
            continue
        listener.close()
        os._exit(_serve_one(connection))


def _serve_one(connection: socket.socket) -> int:
    """Do what one request says, and answer with an exit code."""
    request = json.loads(connection.makefile().readline())
    os.chdir(request["folder"])
    output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    module, function = request["function"].split(":")
    sys.argv = [module, *request["arguments"]]
    code = 0
    try:
        getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    with suppress(OSError):  # the other side has gone
        connection.sendall(f"{code}\n".encode())
    return code


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
    else:
        with suppress(KeyboardInterrupt):  # the end of a notebook
            sys.exit(run(*sys.argv[1:]))
