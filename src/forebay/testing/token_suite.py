"""What every token encoder must do: a suite for pytest (asyncio mode ``auto``).

Subclass ``TokenEncoderConformance`` in a test module and provide an ``encoder`` fixture.
"""

from __future__ import annotations

import asyncio

from forebay.kernel.tokens import TokenEncoder, TokenStates
from forebay.testing.embedder_suite import TEXTS


class TokenEncoderConformance:
    """One test per promise of the ``TokenEncoder`` protocol."""

    async def test_spec_says_whose_states_they_are(self, encoder: TokenEncoder) -> None:
        spec = encoder.spec
        assert len(spec.fingerprint) >= 16
        assert spec.dimensions > 0
        assert spec.max_tokens > 0

    async def test_one_row_per_token_and_one_value_per_text(self, encoder: TokenEncoder) -> None:
        for kind in ("query", "passage", "raw"):
            found = await encoder.states(TEXTS, kind=kind)
            assert len(found) == len(TEXTS)
            for each in found:
                assert 0 < each.tokens <= encoder.spec.max_tokens
                assert each.dimensions == encoder.spec.dimensions
                assert len(each.data) == 4 * each.tokens * each.dimensions
                assert any(each.data)

    async def test_states_keep_the_order_of_the_texts(self, encoder: TokenEncoder) -> None:
        together = await encoder.states(TEXTS, kind="passage")
        for text, expected in zip(TEXTS, together, strict=True):
            (alone,) = await encoder.states([text], kind="passage")
            assert near(alone, expected)
        assert not near(together[0], together[1])

    async def test_nothing_in_nothing_out(self, encoder: TokenEncoder) -> None:
        assert await encoder.states([], kind="query") == ()

    async def test_odd_and_very_long_texts_have_tokens(self, encoder: TokenEncoder) -> None:
        odd = ("", " ", "\x00", "\ud800", "🙂", "<s></s><pad>", "退货" * 100_000, "word " * 50_000)
        async with asyncio.timeout(20):
            found = await encoder.states(odd, kind="passage")
        assert all(0 < each.tokens <= encoder.spec.max_tokens for each in found)

    async def test_cancelling_leaves_it_usable(self, encoder: TokenEncoder) -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            work = group.create_task(encoder.states(TEXTS * 20, kind="passage"))
            await asyncio.sleep(0)
            work.cancel()
        assert work.cancelled()
        async with asyncio.timeout(20):
            assert len(await encoder.states(TEXTS[:1], kind="query")) == 1


def near(left: TokenStates, right: TokenStates) -> bool:
    """Whether two texts have the same states, to what rounding leaves."""
    if (left.tokens, left.dimensions) != (right.tokens, right.dimensions):
        return False
    pairs = zip(memoryview(left.data).cast("f"), memoryview(right.data).cast("f"), strict=True)
    return all(abs(a - b) <= 1e-3 * max(1.0, abs(b)) for a, b in pairs)
