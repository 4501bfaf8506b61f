"""Many mixes, each judged in a process of its own choice; references are kept in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from forebay.lab.mixes.judge import Verdict, judge
from forebay.lab.mixes.mix import Mix
from forebay.lab.mixes.trial import Trial, pack, production, unpack
from forebay.lab.workload.plan import Workload

VERSION = 7
"""Raised when equal mixes begin to give other references."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One mix and what the judge says of the admission on it."""

    mix: Mix
    requests: int
    clairvoyant: str
    """Which schedule was the best."""
    clairvoyant_shares: dict[str, float]
    verdict: Verdict
    straight: Verdict
    """What the judge says of sending straight on."""


def try_mix(mix: Mix, cache: Path | None = None) -> Report:
    """Judge the production admission on a mix."""
    trial = Trial(mix)
    print_of = fingerprint(mix)
    kept = None if cache is None else cache / f"{print_of}.bin"
    found = unpack(kept.read_bytes(), print_of) if kept is not None and kept.exists() else None
    reference, name = found or trial.reference()
    if kept is not None and found is None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pack(reference, name, print_of))
    verdict = trial.verdict(reference, production())
    return Report(
        mix=mix,
        requests=len(trial.requests),
        clairvoyant=name,
        clairvoyant_shares=trial.offered.shares(reference.clairvoyant),
        verdict=verdict,
        straight=judge(trial.offered, reference, reference.straight),
    )


def fingerprint(mix: Mix) -> str:
    """What decides about a mix's references, as a file name."""
    workload = Workload(mix.workload).fingerprint
    profile = mix.profile.replace("/", "-")
    return f"{VERSION}-{workload}-{mix.seed}-{profile}-{mix.replicas}"


def sweep(mixes: Iterable[Mix], jobs: int = 1, cache: Path | None = None) -> Iterator[Report]:
    """Judge every mix, in the given order."""
    if jobs < 2:
        yield from (try_mix(mix, cache) for mix in mixes)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(try_mix, mix, cache) for mix in mixes]
        yield from (one.result() for one in waiting)
