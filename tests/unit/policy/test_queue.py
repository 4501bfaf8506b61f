"""The waiting line: classes, fairness by cost, deadlines, bounds, leaving."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from forebay.kernel.context import Priority
from forebay.policy.queue import CLASSES, FairQueue, QueueSettings, Waiting


def waiting(
    item: int, tenant: str = "a", priority: Priority = "normal", cost: float = 1, by: float = 10
) -> Waiting[int]:
    return Waiting(item, tenant=tenant, priority=priority, cost=cost, deadline_at=by)


def drained(queue: FairQueue[int]) -> list[int]:
    taken = []
    while (one := queue.pop()) is not None:
        taken.append(one.item)
    return taken


def test_higher_classes_first_then_earliest_deadline() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings())
    for one in (
        waiting(1, priority="low", by=1),
        waiting(2, by=9),
        waiting(3, by=4),
        waiting(4, priority="high", by=99),
        waiting(5, by=4),
    ):
        assert queue.push(one, 0.0) == ()
    assert queue.cost_before("high") == 1
    assert queue.cost_before("normal") == 4
    assert drained(queue) == [4, 3, 5, 2, 1]
    assert queue.statistics() == {"high": 0, "normal": 0, "low": 0, "waiting": 0, "cost": 0}


def test_backlogged_tenants_get_cost_in_proportion_to_weight() -> None:
    draw = Random(5)
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=100_000))
    weights = {"small": 1.0, "big": 1.0, "vip": 2.0}
    sizes = {"small": 10.0, "big": 1000.0, "vip": 100.0}
    served = dict.fromkeys(weights, 0.0)

    def refill(tenant: str) -> None:
        cost = sizes[tenant] * draw.uniform(0.5, 1.5)
        queue.push(waiting(0, tenant, cost=cost), 0.0, weights[tenant])

    for tenant in weights:
        for _ in range(5):
            refill(tenant)
    for _ in range(40_000):
        one = queue.pop()
        assert one is not None
        served[one.tenant] += one.cost
        refill(one.tenant)
    each = [served[tenant] / weights[tenant] for tenant in weights]
    assert max(each) / min(each) < 1.05


def test_five_thousand_tenants_share_fairly() -> None:
    draw = Random(9)
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=20_000))
    served = [0.0] * 5000
    sizes = [draw.choice((10.0, 20.0)) for _ in served]
    for number, size in enumerate(sizes):
        for _ in range(2):
            queue.push(waiting(number, str(number), cost=size), 0.0)
    total = 0.0
    while total < 5000 * 500:
        one = queue.pop()
        assert one is not None
        served[one.item] += one.cost
        total += one.cost
        queue.push(waiting(one.item, one.tenant, cost=one.cost), 0.0)
    assert max(served) / min(served) < 1.05


def test_who_was_idle_gains_no_credit() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings())
    for number in range(20):
        queue.push(waiting(number, "busy", cost=10), 0.0)
    for _ in range(10):
        queue.pop()
    for number in range(100, 105):
        queue.push(waiting(number, "idle", cost=10), 0.0)
    tenants = [number >= 100 for number in drained(queue)[:10]]
    assert 4 <= sum(tenants) <= 5
    assert tenants[:2] != [True, True]


def test_a_full_line_refuses_the_newcomer_or_a_lower_class() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=3))
    low_a, low_b = waiting(1, "a", "low", by=5), waiting(2, "b", "low", cost=9, by=5)
    for one in (low_a, low_b, waiting(3)):
        assert queue.push(one, 0.0) == ()
    late = waiting(4, priority="low")
    assert queue.push(late, 0.0) == (late,)
    assert queue.push(waiting(5), 0.0) == (low_b,)
    assert low_b.state == "refused"
    assert queue.push(waiting(6, priority="high"), 0.0) == (low_a,)
    third = waiting(7)
    assert queue.push(third, 0.0) == (third,)
    assert drained(queue) == [6, 3, 5]


def test_a_full_line_is_left_by_who_would_be_served_last() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=4))
    for number in range(4):
        assert queue.push(waiting(number, "floods", cost=10), 0.0) == ()
    late = waiting(4, "floods", cost=10)
    assert queue.push(late, 0.0) == (late,)
    # A long request of somebody else is first in turn all the same.
    [out] = queue.push(waiting(5, "quiet", cost=1000), 0.0)
    assert out.item == 3
    [out] = queue.push(waiting(6, "other", cost=1), 0.0)
    assert out.item == 2
    second = waiting(7, "quiet", cost=1)
    assert queue.push(second, 0.0) == (second,)
    assert queue.statistics()["waiting"] == 4
    assert drained(queue) == [0, 5, 6, 1]


def test_a_tenant_of_more_weight_holds_more_of_a_full_line() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=12))
    inside = {"one": 0, "three": 0}
    for number in range(60):
        for tenant, weight in (("one", 1.0), ("three", 3.0)):
            inside[tenant] += 1
            for out in queue.push(waiting(number, tenant, cost=10), 0.0, weight):
                inside[out.tenant] -= 1
    assert inside == {"one": 3, "three": 9}


def test_who_floods_waits_for_all_he_sent_and_others_for_their_turn() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings())
    assert queue.cost_ahead("anybody", "normal", 10) == 0
    for number in range(100):
        queue.push(waiting(number, "floods", cost=10), 0.0)
    assert queue.cost_ahead("floods", "normal", 10) == 1000
    assert queue.cost_ahead("quiet", "normal", 10) == 10
    assert queue.cost_ahead("quiet", "high", 10) == 0
    assert queue.cost_ahead("quiet", "low", 10) == 1000
    queue.push(waiting(100, "quiet", cost=50), 0.0)
    # Until its second turn comes, the other is given as much.
    assert 100 <= queue.cost_ahead("quiet", "normal", 10) <= 125
    assert queue.cost_ahead("floods", "normal", 10) == 1050


def test_the_urgent_do_not_wait_for_the_patient_of_their_tenant() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=4))
    for number, due in enumerate((20, 30, 40, 4)):
        assert queue.push(waiting(number, cost=100, by=due), 0.0) == ()
    # One request may be at its turn already, whoever comes.
    assert queue.cost_ahead("a", "normal", 2) == 100
    assert queue.cost_ahead("a", "normal", 10) == 200
    assert queue.cost_ahead("a", "normal", 25) == 300
    # Nor are they kept out by a line full of those who have time, who are kept out themselves.
    (out,) = queue.push(waiting(4, cost=1, by=5), 0.0)
    assert out.item == 2
    late = waiting(5, cost=1, by=50)
    assert queue.push(late, 0.0) == (late,)
    assert drained(queue) == [3, 4, 0, 1]


def test_nobody_is_pushed_out_in_vain() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting_cost=100))
    low = waiting(1, priority="low", cost=50)
    queue.push(low, 0.0)
    queue.push(waiting(2, cost=50), 0.0)
    big = waiting(3, cost=80)
    assert queue.push(big, 0.0) == (big,)
    assert low.state == "waiting"
    assert queue.cost == 100
    assert drained(queue) == [2, 1]
    assert queue.push(waiting(4, cost=500), 0.0) == ()


def test_nobody_waits_in_a_line_of_length_zero() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=0))
    one = waiting(1)
    assert queue.push(one, 0.0) == (one,)


def test_memory_follows_those_who_wait_not_those_who_left() -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=1000))
    queue.push(waiting(0, "stays", by=1), 0.0)
    for number in range(5000):
        one = waiting(number, f"t{number}", by=50)
        queue.push(one, 0.0)
        assert queue.remove(one)
        assert not queue.remove(one)
        other = waiting(number, "stays", by=50)
        queue.push(other, 0.0)
        queue.remove(other)
    group = queue._classes["normal"]
    assert len(group.lines) < 100
    assert len(group.order) < 100
    assert len(group.lines["stays"].heap) < 50
    assert drained(queue) == [0]
    assert not group.lines
    assert not group.order


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "pop", "remove"]),
            st.integers(0, 3),
            st.sampled_from(CLASSES),
            st.integers(0, 20),
        ),
        max_size=80,
    )
)
def test_every_one_leaves_exactly_once_and_the_sums_hold(
    calls: list[tuple[str, int, Priority, int]],
) -> None:
    queue: FairQueue[int] = FairQueue(QueueSettings(max_waiting=6, max_waiting_cost=60))
    inside: dict[int, Waiting[int]] = {}
    for number, (call, tenant, priority, size) in enumerate(calls):
        if call == "push":
            one = waiting(number, str(tenant), priority, cost=size, by=size)
            out = queue.push(one, 0.0)
            inside[number] = one
            for other in out:
                del inside[other.item]
                lower = CLASSES.index(other.priority) > CLASSES.index(priority)
                # Of its own class only who would be served after it.
                assert other is one or lower or (other.priority == priority and other.tag > one.tag)
        elif call == "pop":
            taken = queue.pop()
            if taken is None:
                assert not inside
            else:
                highest = min(CLASSES.index(one.priority) for one in inside.values())
                assert CLASSES.index(taken.priority) == highest
                del inside[taken.item]
        elif inside:
            assert queue.remove(inside.pop(sorted(inside)[size % len(inside)]))
        assert {one.item for one in queue} == set(inside)
        assert len(queue) == len(inside)
        assert abs(queue.cost - sum(one.cost for one in inside.values())) < 1e-6
    assert sorted(drained(queue)) == sorted(inside)
