"""What of a run's options goes into its result: everything but secrets."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.lab.bench.options import BenchOptions
from forebay.lab.workload.plan import Workload

_SECRET = frozenset(("key", "key_file", "api_key"))


def describe_workload(workload: Workload) -> dict[str, Any]:
    """The workload as its file would say it, without keys."""
    plain: dict[str, Any] = _without_secrets(msgspec.to_builtins(workload.spec))
    return plain | {"name": workload.name}


def describe_options(options: BenchOptions) -> dict[str, Any]:
    """Target, bounds and recording; of headers only their names."""
    target: dict[str, Any] = _without_secrets(msgspec.to_builtins(options.target))
    target["headers"] = sorted(options.target.headers)
    return {
        "target": target,
        "bounds": msgspec.to_builtins(options.bounds),
        "slice_s": options.slice_s,
        "warmup_s": options.warmup_s,
    }


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_secrets(inner) for name, inner in value.items() if name not in _SECRET
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner) for inner in value]
    return value
