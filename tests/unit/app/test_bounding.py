"""How many retrievals run at once on how many cores."""

from __future__ import annotations

import pytest

from forebay.app.bounding import among, within_cores
from forebay.app.settings import Settings
from forebay.policy.bulkhead import RETRIEVAL_LINE
from forebay.policy.line import LineTicket, WaitingLine


@pytest.mark.parametrize(("at_once", "most"), [(4, 8), (8, 8), (32, 32), (256, 64)])
def test_a_few_for_each_core_and_never_fewer_than_at_the_beginning(at_once: int, most: int) -> None:
    line = within_cores(RETRIEVAL_LINE, at_once)
    assert line.limit.least == line.limit.initial == line.limit.most == most
    assert line.max_waiting == RETRIEVAL_LINE.max_waiting
    assert line.shed == RETRIEVAL_LINE.shed


def test_local_retrieval_is_never_narrowed_to_look_at_what_few_would_take() -> None:
    line = WaitingLine(within_cores(RETRIEVAL_LINE, 8))
    waiting, now = [LineTicket(deadline_at=900.0) for _ in range(400)], 0.0
    at_work: list[LineTicket] = []
    for ticket in waiting:
        line.arrive(ticket, now)
    while at_work or line.queue:
        at_work += line.let_in()
        assert len(at_work) == 8 or not line.queue
        # As slow as one pleases: a machine that is busy with other things is no crowd.
        now += 0.01 if now < 1.0 else 0.5
        line.finish(at_work.pop(0), now, ok=True)
        at_work += line.let_in()
        assert line.limit.limit == 8


@pytest.mark.parametrize(("processes", "each"), [(1, 4), (2, 2), (4, 1), (9, 1)])
def test_processes_on_one_machine_share_its_cores(processes: int, each: int) -> None:
    settings = Settings()
    divided = among(settings, processes)
    assert divided.admission.retrieval_per_core == each
    assert (divided == settings) == (processes == 1)
