"""``forebay doctor``: what this machine has, what would be used, what is missing, how to get it."""

from __future__ import annotations

import http.client
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from forebay.app.doctor_models import examine_models
from forebay.app.doctor_ranking import PROBE_S, Finding, examine_ranking
from forebay.app.output import Output
from forebay.app.settings import Settings, environment, load_settings
from forebay.gateway.identity import build_table, check_binding
from forebay.kernel.cores import usable_cores
from forebay.kernel.errors import ConfigError


def doctor(config: Path | None, flags: dict[str, Any], output: Output) -> int:
    """Print every finding; exit 1 when something needed is missing."""
    settings, _ = load_settings(config, flags)
    findings = list(examine(settings))
    if output.as_json:
        output.result(findings)
    else:
        marks = {"ok": "ok  ", "note": "note", "missing": "MISS"}
        for finding in findings:
            output.line(f"{marks[finding.status]}  {finding.name}: {finding.detail}")
            if finding.remedy:
                output.line(f"      -> {finding.remedy}")
    return 1 if any(finding.status == "missing" for finding in findings) else 0


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at machine, libraries, models, store, documents and port."""
    yield from _machine()
    yield from _libraries()
    yield from examine_models(settings, environment())
    yield from examine_ranking(settings, environment())
    yield from _store(Path(settings.store.path))
    yield from _knowledge(settings)
    yield from _keys(settings)
    yield _port(settings.server.host, settings.server.port)


def _machine() -> Iterator[Finding]:
    version = platform.python_version()
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding(
        "python",
        "ok" if supported else "note",
        version,
        "" if supported else "Forebay is tested on Python 3.11 to 3.13.",
    )
    memory = psutil.virtual_memory()
    yield Finding("machine", "ok", f"{platform.platform()}, {usable_cores()} cores")
    free_gb = memory.available / 1e9
    yield Finding(
        "memory",
        "ok" if free_gb >= 2 else "note",
        f"{free_gb:.1f} of {memory.total / 1e9:.1f} GB free",
        "" if free_gb >= 2 else "the embedder and 100,000 chunks want about 2 GB.",
    )


def _libraries() -> Iterator[Finding]:
    for name in ("faiss-cpu", "tantivy", "onnxruntime", "pypdfium2", "uvicorn"):
        try:
            yield Finding(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, "missing", "not installed", "run `make setup`.")


def _store(path: Path) -> Iterator[Finding]:
    parent = path
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not os.access(parent, os.W_OK):
        remedy = "choose another folder with store.path."
        yield Finding("store", "missing", f"{path} cannot be written", remedy)
        return
    state = "exists" if path.exists() else "will be made on first use"
    free_gb = shutil.disk_usage(parent).free / 1e9
    yield Finding(
        "store",
        "ok" if free_gb >= 1 else "note",
        f"{path} {state}, {free_gb:.1f} GB free",
        "" if free_gb >= 1 else "commits are refused when the disk is full; free some space.",
    )


def _knowledge(settings: Settings) -> Iterator[Finding]:
    for name, knowledge in settings.knowledge.items():
        gone = [path for path in knowledge.paths if not Path(path).exists()]
        detail = f"{', '.join(gone)}: no such file or folder"
        remedy = f"correct knowledge.{name}.paths; they count from the folder you start in."
        if gone:
            yield Finding(f"knowledge, {name}", "missing", detail, remedy)
        elif knowledge.paths:
            yield Finding(f"knowledge, {name}", "ok", ", ".join(knowledge.paths))


def _keys(settings: Settings) -> Iterator[Finding]:
    try:
        check_binding(settings.server.host, build_table(settings.tenants))
    except ConfigError as error:
        detail, _, remedy = str(error).partition("; ")
        yield Finding("keys", "missing", detail, remedy)


def _port(host: str, port: int) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if _forebay_answers(host, port):
                return Finding("port", "ok", f"{host}:{port} is served by a running Forebay")
            remedy = f"stop what listens there, or choose another with --port (now {port})."
            reason = error.strerror or "in use"
            return Finding("port", "note", f"{host}:{port} cannot be bound: {reason}", remedy)
    return Finding("port", "ok", f"{host}:{port} is free")


def _forebay_answers(host: str, port: int) -> bool:
    """Whether what listens there is a Forebay; asked of this machine only."""
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status == http.client.OK and answer.getheader("x-request-id") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
