"""The process that writes to the folder of a run, recorded in a file there."""

import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from hooks.files import process_exists, shortened, write_json


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A process that writes to a folder."""

    process: int
    """Its number on its machine."""
    host: str
    since: str
    """When it began, as text."""
    token: str
    """Random, to notice that another process has taken the folder."""

    @classmethod
    def of_this_process(cls) -> "Writer":
        """This process, from now on."""
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        return cls(process=os.getpid(), host=socket.gethostname(), since=since, token=uuid.uuid4().hex)

    @classmethod
    def load(cls, path: Path) -> "Writer | None":
        """The writer recorded in a file; None if there is none, or the file cannot be read."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                process=int(content["process"]),
                host=str(content["host"]),
                since=str(content["since"]),
                token=str(content.get("token", "")),
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def save(self, path: Path) -> None:
        """Record this writer in a file."""
        write_json(path, asdict(self))

    @property
    def is_alive(self) -> bool:
        """Whether the process exists; assumed of a process on another machine."""
        if self.host != socket.gethostname():
            return True
        return process_exists(self.process)

    @property
    def is_stopped(self) -> bool:
        """Whether the process is stopped, as by SIGSTOP or Ctrl-Z; assumed not if that cannot be found out."""
        if self.host != socket.gethostname():
            return False
        try:
            # The state follows the name of the program, which is in brackets
            state = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in ("T", "t")

    def __str__(self) -> str:
        return f"process {self.process} on {shortened(self.host)} (since {shortened(self.since)})"
