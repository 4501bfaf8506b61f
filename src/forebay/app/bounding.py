"""How many retrievals run at once: what generation takes, and what the cores of this machine do."""

from __future__ import annotations

import msgspec

from forebay.app.settings import Settings
from forebay.kernel.cores import usable_cores
from forebay.kernel.stages import Retriever
from forebay.policy.admission import Admission
from forebay.policy.bulkhead import BoundedRetriever
from forebay.policy.line import LineSettings
from forebay.policy.pace import Pace


def open_bounded(
    retriever: Retriever, settings: Settings, admission: Admission
) -> BoundedRetriever:
    """Answers are fed at generation's pace; quoting takes what comes, and so do all open gates."""
    asked, pace = settings.admission, None
    if asked.enabled and settings.generation.backend != "extractive":
        pace = Pace(asked.pace, admission.desk.takes)
    line = asked.retrieval
    if settings.embedding.backend != "openai":
        line = within_cores(line, asked.retrieval_per_core * usable_cores())
    return BoundedRetriever(retriever, admission.desk.clock, line, pace)


def among(settings: Settings, processes: int) -> Settings:
    """The settings of each of so many processes on this machine, which share its cores."""
    admission = settings.admission
    each = max(1, admission.retrieval_per_core // processes)
    admission = msgspec.structs.replace(admission, retrieval_per_core=each)
    return msgspec.structs.replace(settings, admission=admission)


def within_cores(line: LineSettings, at_once: int) -> LineSettings:
    """Let in so many at once, though as many as at the beginning, and no fewer.

    What is at work takes turns at the cores: beyond a few each, more at once makes all of them
    slower and none of them sooner. Fewer make none of them sooner either, and a limit that finds
    itself by latency cannot tell a crowd from a machine that is busy with other things: it let two
    in at a time in the first seconds of a load, and beside an ingest.
    """
    limit = line.limit
    most = min(limit.most, max(limit.initial, at_once))
    fixed = msgspec.structs.replace(limit, initial=most, least=most, most=most)
    return msgspec.structs.replace(line, limit=fixed)
