"""The descriptive files of a bundle: README, RO-Crate 1.2 metadata, CODECHECK 1.0 manifest, environment, cost."""

import csv
import importlib.metadata
import io
import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from interp.core.environment import source_version

CRATE, CODECHECK = "ro-crate-metadata.json", "codecheck.yml"
LICENCE = "https://spdx.org/licenses/MIT"
AUTHORS = "The unmyopic authors"
FORMATS = {"json": "application/json", "xz": "application/x-xz", "md": "text/markdown", "txt": "text/plain"}
FORMATS |= {"csv": "text/csv", "yml": "application/yaml", "jsonl": "application/jsonl"}
CONTENTS = {
    "results/claims.json": "every claim with its number, interval, verdict, cost and provenance",
    "results/details.json.xz": "charts as Vega-Lite, tables, and settings of the models",
    "cost.csv": "CPU seconds, seconds and peak memory of each claim, and training time of its models",
    "models.json": "key, seed and SHA-256 of the weights of each model",
    "requirements.txt": "packages of the environment in which the bundle was written",
    "environment.json": "its Python, platform and source code",
}
README = """# {title}

Results of the study `{study}` at size `{size}`, {date}. Two commands check them, without network access: the first the
hashes of all files of this folder, unpacked; the second the hashes, and then every claim, measured again and compared
with the number stored here. `{study}.zip` is the path of the archive.

    sha256sum --check SHA256SUMS
    interp reproduce {study} --check --against {study}.zip

The second needs unmyopic {version}{source}. It prints `same`, `within` or `differs` for each claim, with the likeliest
cause of a difference, and ends with exit code 0, or 3 if a claim differs. {models}

{files}

Hashes show damage; they do not show who made the archive.
"""


def frozen_environment() -> dict[str, str]:
    """Versions of all installed packages, by name."""
    found = {(one.metadata["Name"] or "").lower(): one.version for one in importlib.metadata.distributions()}
    return {name: found[name] for name in sorted(found) if name}


def describe(content: Mapping[str, Any], title: str, models: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """The files that depend on the results alone: environment, cost, models, README.

    Args:
        content: The content of `claims.json`.
        title: The study's title.
        models: Key, seed, group, digest of weights and files of each model.
    """
    packages, source = frozen_environment(), source_version()
    environment = {"python": platform.python_version(), "platform": platform.platform(), "source": source}
    commit = source["commit"]
    texts = {
        "environment.json": _json(environment),
        "requirements.txt": "".join(f"{name}=={version}\n" for name, version in packages.items()),
        "cost.csv": _cost(content),
        "models.json": _json(models),
        "README.md": README.format(
            title=title,
            study=content["study"],
            size=content["size"],
            date=str(content["manifest"]["time"])[:10],
            version=source["version"],
            source=f", commit {commit}{' with changes' if source['changed'] else ''}" if commit else "",
            models="The trained models are in `models/`."
            if any(one["files"] for one in models)
            else "The models are trained again where they are not in `--out`.",
            files="\n".join(f"- `{name}`: {text}" for name, text in CONTENTS.items()),
        ),
    }
    return {name: text.encode() for name, text in texts.items()}


def ro_crate(content: Mapping[str, Any], title: str, files: Mapping[str, tuple[int, str]]) -> bytes:
    """RO-Crate metadata of all files, given their sizes and SHA-256."""
    when = str(content["manifest"]["time"])
    version = source_version()["version"]
    parts = [{"@id": name} for name in files]
    graph: list[dict[str, Any]] = [
        {
            "@id": CRATE,
            "@type": "CreativeWork",
            "conformsTo": {"@id": "https://w3id.org/ro/crate/1.2"},
            "about": {"@id": "./"},
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": title,
            "description": f"Claims of the study {content['study']} at size {content['size']}, measured and judged.",
            "datePublished": when[:10],
            "license": {"@id": LICENCE},
            "author": {"@id": "#authors"},
            "hasPart": parts,
            "mentions": {"@id": "#measurement"},
        },
        {"@id": LICENCE, "@type": "CreativeWork", "name": "MIT License"},
        {"@id": "#authors", "@type": "Organization", "name": AUTHORS},
        {"@id": "#unmyopic", "@type": "SoftwareApplication", "name": "unmyopic", "version": version},
        {
            "@id": "#measurement",
            "@type": "CreateAction",
            "name": f"interp reproduce {content['study']} --size {content['size']}",
            "instrument": {"@id": "#unmyopic"},
            "endTime": when,
            "result": [part for part in parts if part["@id"].startswith("results/")],
        },
    ]
    for name, (size, digest) in files.items():
        suffix = name.rsplit(".", 1)[-1]
        entity = {"@id": name, "@type": "File", "name": name, "contentSize": str(size), "sha256": digest}
        entity |= {"encodingFormat": FORMATS.get(suffix, "application/octet-stream")}
        graph.append(entity | ({"description": CONTENTS[name]} if name in CONTENTS else {}))
    return _json({"@context": "https://w3id.org/ro/crate/1.2/context", "@graph": graph}).encode()


def codecheck(content: Mapping[str, Any], title: str) -> bytes:
    """The author's part of a CODECHECK configuration; the codechecker adds their name, report and certificate."""
    quoted = json.dumps  # a JSON string is a YAML string
    lines = ["---", "version: https://codecheck.org.uk/spec/config/1.0/", "paper:"]
    lines += [f"  title: {quoted(title)}", "  authors:", f"    - name: {quoted(AUTHORS)}", "manifest:"]
    for name, text in CONTENTS.items():
        if name.startswith(("results/", "cost")):
            lines += [f"  - file: {quoted(name)}", f"    comment: {quoted(text)}"]
    command = f"interp reproduce {content['study']} --check --against {content['study']}.zip"
    lines.append(f"summary: {quoted(f'Check with: {command}')}")
    return ("\n".join(lines) + "\n").encode()


def _cost(content: Mapping[str, Any]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["claim", "cpu_seconds", "seconds", "peak_mb", "training_seconds"])
    for one in content["claims"]:
        cost, trained = one["cost"] or {}, (one["made"] or {}).get("trained") or {}
        rows.writerow(
            [one["id"], *(cost.get(name) for name in ("cpu_seconds", "seconds", "peak_mb")), trained.get("seconds")]
        )
    return text.getvalue()


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
