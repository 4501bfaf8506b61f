"""A gateway before simulated engines, each a process of its own, and a client that keeps all."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from forebay.app.children import Child, running
from forebay.gateway.server import bind
from forebay.kernel.clock import SystemClock
from forebay.lab.bench.desk import Books
from forebay.lab.bench.health import Health
from forebay.lab.bench.live import Live
from forebay.lab.bench.offer import offer
from forebay.lab.bench.options import BenchOptions, GeneratorBounds, Target
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import Recorder, RecorderOptions
from forebay.lab.measure.result import Run, RunResult
from forebay.lab.sim.profiles import find_profile
from forebay.lab.workload.plan import Workload
from forebay.policy.admission import PoolAdmission

KB = "proof"
GATEWAY_LOG = "gateway.log"
LOOPBACK = "127.0.0.1"
MAX_MODEL_LEN = 16_384
WRITE_EVERY_MS = 250
"""Streams are cut into few events: two cores carry gateway, engines and client."""
POLL_S = 0.05
START_S = 60.0


class EnginePool(msgspec.Struct, frozen=True, kw_only=True):
    """Simulated engines of one purpose, and how the gateway and the virtual clock enter them."""

    name: str
    profile: str = "h100/8b/fp16/tp1"
    replicas: int = 1
    speed: float = 1.0
    max_input_tokens: int = 12_000
    max_output_tokens: int = 2_048
    admission: PoolAdmission = PoolAdmission()

    def kv_tokens(self) -> int:
        """What one engine's cache holds."""
        return find_profile(self.profile).kv_tokens()

    def entered(self) -> PoolAdmission:
        """Its admission, with as much let in as the cache holds."""
        gate = msgspec.structs.replace(self.admission.gate, max_tokens=0.95 * self.kv_tokens())
        return msgspec.structs.replace(self.admission, gate=gate)


class Stand(NamedTuple):
    """Where it listens, and its processes."""

    url: str
    port: int
    children: dict[str, Child]


class Kept(Recorder):
    """A recorder that also keeps every request as it ended."""

    def __init__(self, options: RecorderOptions | None = None) -> None:
        super().__init__(options)
        self.all: list[Finished] = []

    def record(self, finished: Finished) -> None:
        """Keep and count."""
        self.all.append(finished)
        super().record(finished)


class Measured(NamedTuple):
    """What a run was like, each request of it, CPU shares of one core, the client's health."""

    result: RunResult
    requests: Sequence[Finished]
    cpu: dict[str, float]
    valid: bool = True
    why_not: Sequence[str] = ()


def configuration(
    pools: Sequence[EnginePool], urls: dict[str, list[str]], *, admission: bool, log: bool
) -> str:
    """The gateway's ``forebay.toml``: bounds that are not admission's are too wide to act."""
    text = f"""
[embedding]
backend = "none"
[knowledge.{KB}]
paths = ["{KB}"]
[server]
max_in_flight = 100000
[server.connections]
max_connections = 20000
[retrieval]
in_flight_max = 10000
[context]
window_tokens = 16384
max_passages = 1
[telemetry]
access_log = {"true" if log else "false"}
[admission]
enabled = {"true" if admission else "false"}
passage_tokens = 80
prompt_tokens = 200
[generation]
backend = "openai"
# What the engines do is measured, so nothing else may answer for them.
[generation.ladder]
enabled = false
[generation.engine]
max_connections = 20000
max_waiting = 100000
"""
    for pool in pools:
        entered, shed = pool.entered(), pool.entered().gate.shed
        text += f"""
[[generation.pools]]
name = "{pool.name}"
base_urls = {msgspec.json.encode([f"{url}/v1" for url in urls[pool.name]]).decode()}
model = "sim"
max_input_tokens = {pool.max_input_tokens}
max_output_tokens = {pool.max_output_tokens}
"""
    for pool in pools:
        entered, shed = pool.entered(), pool.entered().gate.shed
        text += f"""
[admission.pools.{pool.name}]
[admission.pools.{pool.name}.gate]
max_tokens = {int(entered.gate.max_tokens)}
[admission.pools.{pool.name}.gate.shed]
target_s = {shed.target_s}
interval_s = {shed.interval_s}
max_wait_s = {shed.max_wait_s}
"""
    return text


@asynccontextmanager
async def standing(
    folder: Path, pools: Sequence[EnginePool], *, admission: bool = True, log: bool = False
) -> AsyncIterator[Stand]:
    """Engines and gateway while the block runs; ``folder`` holds the documents.

    ``log``: the gateway writes a line for each request into ``folder / GATEWAY_LOG``.
    """
    async with AsyncExitStack() as stack:
        children, urls = {}, {}
        for pool in pools:
            words = [
                *("simulate", "serve", "--port", "0", "--json", "--profile", pool.profile),
                *("--replicas", str(pool.replicas), "--output", "cap"),
                *("--speed", str(pool.speed)),
                *("--set", f"max_model_len={MAX_MODEL_LEN}"),
                *("--set", f"write_every_ms={WRITE_EVERY_MS}"),
            ]
            name = f"engines {pool.name}"
            child = await stack.enter_async_context(running(name, words, folder, heard=True))
            urls[pool.name] = msgspec.json.decode(await child.line())["replicas"]
            children[name] = child
        text = configuration(pools, urls, admission=admission, log=log)
        (folder / "forebay.toml").write_text(text, encoding="utf-8")
        with bind(LOOPBACK, 0) as probe:
            port = probe.getsockname()[1]
        words = ["serve", "--host", LOOPBACK, "--port", str(port), "--store", "store"]
        gateway = await stack.enter_async_context(running("gateway", words, folder))
        children["gateway"] = gateway
        await ready(gateway, port)
        yield Stand(f"http://{LOOPBACK}:{port}", port, children)


async def offered(stand: Stand, workload: Workload, seed: int, warmup_s: float = 0.0) -> Measured:
    """The workload in real time, open loop."""
    options = BenchOptions(
        target=Target(base_url=stand.url, model=f"forebay/{KB}"),
        workload=workload,
        seed=seed,
        warmup_s=warmup_s,
        bounds=GeneratorBounds(max_connections=8_192),
    )
    clock = SystemClock()
    recorder = Kept(RecorderOptions(warmup_s=warmup_s, batch_rows=1_024))
    books = Books(recorder, Health(clock), Live())
    children = stand.children
    before = {name: child.cpu_s() for name, child in children.items()}
    began_at = clock.now()
    await offer(options, books, clock)
    passed_s = clock.now() - began_at
    for child in children.values():
        child.check()
    cpu = {name: (child.cpu_s() - before[name]) / passed_s for name, child in children.items()}
    health = books.health.verdict(options.bounds)
    cpu["generator"] = health.cpu_share
    run = Run(source="bench", seed=seed)
    result = recorder.result(run, duration_s=workload.duration_s, generator=health)
    return Measured(result, recorder.all, cpu, health.valid, health.why_not)


async def ready(gateway: Child, port: int) -> None:
    """Wait until it says so; an error when it ends or takes too long."""
    clock = SystemClock()
    until = clock.now() + START_S
    while not await asyncio.to_thread(_is_ready, port):
        gateway.check()
        if clock.now() > until:
            raise SystemExit(f"the gateway was not ready within {START_S:g} s")
        await asyncio.sleep(POLL_S)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
