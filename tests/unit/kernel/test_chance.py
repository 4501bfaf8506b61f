"""Random bytes: each is handed out once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from forebay.kernel.chance import PAGE_BYTES, RandomBytes, RandomNames


def test_bytes_are_of_the_source_and_each_is_handed_out_once() -> None:
    asked: list[int] = []

    def source(count: int) -> bytes:
        asked.append(count)
        return b"".join(
            (len(asked) * PAGE_BYTES + at).to_bytes(4, "big") for at in range(0, count, 4)
        )

    draw = RandomBytes(source)
    pieces = [draw(12) for _ in range(1000)]
    assert all(len(piece) == 12 for piece in pieces)
    assert len({piece[at : at + 4] for piece in pieces for at in (0, 4, 8)}) == 3000
    assert set(asked) == {PAGE_BYTES} and len(asked) == 3


def test_many_at_once_come_from_the_system() -> None:
    draw = RandomBytes()
    assert len(draw(PAGE_BYTES)) == PAGE_BYTES
    assert draw(0) == b""


def test_threads_share_it() -> None:
    draw = RandomBytes()
    with ThreadPoolExecutor(4) as threads:
        names = list(threads.map(lambda _: draw(16), range(2000)))
    assert len(set(names)) == 2000


def test_names_are_handed_out_once_among_threads() -> None:
    name = RandomNames(12)
    with ThreadPoolExecutor(4) as threads:
        names = list(threads.map(lambda _: name(), range(5000)))
    assert len(set(names)) == 5000
    assert all(len(bytes.fromhex(one)) == 12 for one in names)
