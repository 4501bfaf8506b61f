"""``forebay distill`` from the command line: by labels and by teachers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from forebay.rerank.features import FEATURES, Candidates
from forebay.rerank.late_head import LateHead
from forebay.rerank.light import LightModel
from forebay.testing.rerank_server import RerankServer
from forebay.testing.reranking import share_held
from forebay.testing.tiny_cross_encoder import write_tiny_cross_encoder
from forebay.testing.tiny_model import write_tiny_model
from tests.integration.support import Ran, forebay
from tests.unit.lab.evaluate.judging.judges import ScriptedJudge
from tests.unit.lab.evaluate.scripted import Scripted

TOPICS = ("harbour", "boiler", "invoice", "parcel", "turbine", "canteen")
Server = TypeVar("Server", RerankServer, Scripted)
VERBS = ("opens", "closes", "moves", "waits")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set whose questions have one right document each, and an embedder's folder."""
    folder = tmp_path_factory.mktemp("distill")
    write_tiny_model(folder / "embedder")
    asked = folder / "asked"
    asked.mkdir()
    documents, questions, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for topic in TOPICS:
        for verb in VERBS:
            name = f"{topic}-{verb}"
            text = f"The {topic} {verb} at noon; see the notes on {TOPICS[0]} and {TOPICS[1]}."
            documents.append({"_id": name, "title": "", "text": text})
            questions.append({"_id": name, "text": f"when the {topic} {verb} say something"})
            qrels.append(f"{name}\t{name}\t1")
    for file, rows in (("corpus.jsonl", documents), ("queries.jsonl", questions)):
        (asked / file).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (asked / "qrels.tsv").write_text("\n".join(qrels), encoding="utf-8")
    return folder


def distilled(
    world: Path,
    *words: str | Path,
    write: str = "light.onnx",
    asked: str = "asked",
    kind: tuple[str, ...] = (),
) -> Ran:
    settings = (
        "--set", "embedding.backend=onnx",
        "--set", f"embedding.path={world / 'embedder'}",
        "--set", "retrieval.early_exit_confidence=2",
    )  # fmt: skip
    return forebay(
        "distill", *kind, world / asked, "--write", world / write, "--json", *settings, *words,
        folder=world,
    )  # fmt: skip


@contextmanager
def in_a_thread(server: Server) -> Iterator[Server]:
    """A server on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(20)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_labels_make_a_model_of_the_embedder_in_use(world: Path) -> None:
    done = distilled(world)
    assert done.status == 0, done
    found = done.json
    model = LightModel.read(world / "light.onnx")
    assert model.info.dimensions == 16
    assert model.info.reads_sentences, "their vectors were waited for"
    assert "labels of asked" in model.info.trained_on
    assert 0 < found["trained_on"] < 24
    held = found["held_out"]["asked"]
    assert held["questions"] == 24 - found["trained_on"]
    assert held["reranked"] >= held["search"] - 0.05


def test_teachers_are_asked_for_every_candidate(world: Path) -> None:
    with in_a_thread(RerankServer()) as server:
        done = distilled(
            world, "--teacher", "endpoint", "--endpoint", server.base_url, "--candidates", "5",
            write="endpoint.onnx",
        )  # fmt: skip
        assert done.status == 0, done
        assert len(server.requests) == 24
        assert {len(one["documents"]) for one in server.requests} == {5}
    found = done.json
    assert found["teacher"]["asked"] > 0.5
    assert found["held_out"]["asked"]["reranked"] >= 0.98 * found["teacher"]["asked"]
    folder = write_tiny_cross_encoder(world / "cross")
    done = distilled(world, "--teacher", "onnx", "--folder", folder, write="onnx.onnx")
    assert done.status == 0 and "asked" in done.json["teacher"], done


def test_without_labels_the_floor_is_by_the_teachers_relevances(world: Path) -> None:
    questions = [json.loads(line) for line in (world / "asked" / "queries.jsonl").open()]
    bare = world / "bare.jsonl"
    bare.write_text("\n".join(json.dumps({"question": one["text"]}) for one in questions))
    documents = world / "documents"
    documents.mkdir()
    for line in (world / "asked" / "corpus.jsonl").open():
        one = json.loads(line)
        (documents / f"{one['_id']}.txt").write_text(one["text"])
    with in_a_thread(RerankServer()) as server:
        done = distilled(
            world, "--documents", documents, "--teacher", "endpoint",
            "--endpoint", server.base_url, write="bare.onnx", asked="bare.jsonl",
        )  # fmt: skip
        assert done.status == 0, done
    assert not done.json["held_out"]
    model = LightModel.read(world / "bare.onnx")
    chance = np.random.default_rng(1)
    features = chance.random((6, len(FEATURES))).astype(np.float32)
    vectors = chance.random((7, model.info.dimensions)).astype(np.float32)
    scores, relevances = model.run(Candidates(features, vectors[0], vectors[1:]))
    uncalibrated = 1 / (1 + np.exp(-np.array(scores)))
    assert np.abs(np.array(relevances) - uncalibrated).max() > 0.02


def test_a_judge_teaches(world: Path) -> None:
    judge = ScriptedJudge(share_held)
    with in_a_thread(Scripted(judge)) as server:
        done = distilled(
            world, "--teacher", "judge", "--endpoint", server.url, "--model", "m",
            "--candidates", "5", write="judge.onnx",
        )  # fmt: skip
    assert done.status == 0, done
    assert (
        len(judge.asked) >= 24
        and "judge of asked" in LightModel.read(world / "judge.onnx").info.trained_on
    )
    found = done.json
    held = found["held_out"]["asked"]
    assert found["teacher"]["asked"] > 0.5 and held["reranked"] >= held["search"] - 0.05


@pytest.mark.parametrize("teacher", ["labels", "states"])
def test_late_interaction_is_trained_for_the_embedder_in_use(world: Path, teacher: str) -> None:
    write = f"late-{teacher}.onnx"
    done = distilled(
        world, "--teacher", teacher, "--candidates", "8", write=write, kind=("late",)
    )  # fmt: skip
    assert done.status == 0, done
    head = LateHead(world / write)
    assert head.info.inputs == 16
    found = done.json
    assert 0 < found["trained_on"] < 24
    held = found["held_out"]["asked"]
    assert held["questions"] == 24 - found["trained_on"]
    assert held["reranked"] >= held["search"] - 0.05
    assert 0.0 < found["alone"]["asked"] <= 1.0
    assert found["teacher"].keys() == ({"asked"} if teacher == "states" else set())


def test_late_interaction_hears_a_teacher(world: Path) -> None:
    with in_a_thread(RerankServer()) as server:
        done = distilled(
            world, "--teacher", "endpoint", "--endpoint", server.base_url, "--candidates", "5",
            write="late-endpoint.onnx", kind=("late",),
        )  # fmt: skip
    assert done.status == 0 and len(server.requests) == 24, done
    assert done.json["teacher"]["asked"] > 0.5


def test_what_is_trained_can_be_said_and_wants_a_set(world: Path) -> None:
    done = distilled(world, write="said.onnx", kind=("light",))
    assert done.status == 0 and LightModel.read(world / "said.onnx").info.dimensions == 16, done
    done = forebay("distill", "late", "--write", world / "none.onnx", folder=world)
    assert done.status in (1, 2) and "needs a set of questions" in done.err, done
    done = distilled(world, "--teacher", "states", write="none.onnx")
    assert done.status in (1, 2) and "--teacher is one of" in done.err, "of late alone"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--teacher", "magic"), "--teacher is one of"),
        (("--teacher", "endpoint"), "--endpoint"),
        (("--teacher", "judge", "--endpoint", "http://127.0.0.1:9/v1"), "--model"),
        (("--teacher", "onnx"), "--folder"),
        (("--set", "embedding.backend=none"), "embedding.backend"),
    ],
)
def test_wrong_words_are_told(world: Path, words: tuple[str, ...], told: str) -> None:
    done = distilled(world, *words, write="none.onnx")
    assert done.status in (1, 2) and told in done.err, done
    assert not (world / "none.onnx").exists()
