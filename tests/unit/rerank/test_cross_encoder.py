"""Cross-encoders from a folder: what is read, what is refused, how they wait."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forebay.kernel.errors import ConfigError, DeadlineExceeded, Overloaded, Unavailable
from forebay.rerank.cross_encoder import CrossEncoder, CrossEncoderReranker
from forebay.rerank.settings import CrossEncoderSettings
from forebay.testing.reranker_suite import reranking_context
from forebay.testing.tiny_cross_encoder import write_tiny_cross_encoder

QUERY, TEXTS = "reset a password", ["reset the password", "lunch is served", "password"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_cross_encoder(tmp_path_factory.mktemp("models") / "tiny")


def test_a_logit_does_not_depend_on_what_it_was_batched_with(folder: Path) -> None:
    model = CrossEncoder(CrossEncoderSettings(path=str(folder)))
    together = model.logits(QUERY, TEXTS)
    alone = [model.logits(QUERY, [text])[0] for text in TEXTS]
    assert together == pytest.approx(alone, abs=1e-4)
    assert together.argmin() == 1


def test_two_classes_are_one_logit(tmp_path: Path, folder: Path) -> None:
    classes = write_tiny_cross_encoder(tmp_path / "classes", outputs=2)
    one = CrossEncoder(CrossEncoderSettings(path=str(folder))).logits(QUERY, TEXTS)
    two = CrossEncoder(CrossEncoderSettings(path=str(classes))).logits(QUERY, TEXTS)
    assert two == pytest.approx(one, abs=1e-4)


def test_long_texts_are_cut_and_leave_room_for_each_other(folder: Path) -> None:
    model = CrossEncoder(CrossEncoderSettings(path=str(folder), max_tokens=16))
    found = model.logits("password " * 5000, ["password " * 5000, "lunch " * 5000])
    assert found[0] > found[1]


def test_a_folder_that_is_none_is_told(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        CrossEncoder(CrossEncoderSettings(path=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read"):
        CrossEncoder(CrossEncoderSettings(path=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigError, match=r"no model\.onnx"):
        CrossEncoder(CrossEncoderSettings(path=str(tmp_path)))
    (tmp_path / "model.onnx").write_bytes(b"none")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        CrossEncoder(CrossEncoderSettings(path=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"no other\.onnx"):
        CrossEncoder(CrossEncoderSettings(path=str(tmp_path), model_file="other.onnx"))


class Held(CrossEncoder):
    """A model that waits at a gate."""

    def __init__(self, settings: CrossEncoderSettings) -> None:
        super().__init__(settings)
        self.gate = threading.Event()
        self.runs = 0

    def logits(self, query: str, texts: object) -> np.ndarray:
        self.runs += 1
        assert self.gate.wait(10)
        return np.zeros(len(texts))  # type: ignore[arg-type]


async def test_waiting_is_bounded_and_what_has_not_begun_is_dropped(folder: Path) -> None:
    settings = CrossEncoderSettings(path=str(folder), batch_size=1, max_waiting=2, timeout_s=0.1)
    model = Held(settings)
    reranker = CrossEncoderReranker(model, settings)
    first = asyncio.ensure_future(reranker.rerank(reranking_context(), "q", ["a", "b", "c"]))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await reranker.rerank(reranking_context(), "q", ["d"])
    with pytest.raises(DeadlineExceeded):
        await first
    model.gate.set()
    again = CrossEncoderReranker(model, msgspec.structs.replace(settings, timeout_s=10.0))
    assert len(await again.rerank(reranking_context(), "q", ["a"])) == 1
    assert model.runs == 2, "b and c never ran"
    for one in (reranker, again):
        await one.close()
        with pytest.raises(Unavailable):
            await one.rerank(reranking_context(), "q", ["a"])
