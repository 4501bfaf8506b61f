"""``forebay prove``: the same traffic through a plain pass-through and through admission.

Gateway, retrieval, admission and HTTP are real and run as processes of their own; the engine
behind them is simulated in real time. The pass-through is Forebay with ``admission.enabled`` off,
so that everything else is equal.
"""

from __future__ import annotations

import asyncio
import http.client
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import uvloop

from forebay.app.children import START_S, Child, running
from forebay.app.delivery import Delivery
from forebay.app.output import Output
from forebay.app.proof_traffic import (
    HEAVY,
    KB,
    MEDIUM,
    PARTS,
    Mix,
    configuration,
    workload,
    write_corpus,
)
from forebay.app.words import Words
from forebay.gateway.server import bind
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError, Unavailable
from forebay.lab.bench.options import BenchOptions, Observer, Snapshot, Target
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import RunResult
from forebay.lab.report.live import LiveView
from forebay.lab.report.page import svg
from forebay.lab.report.proof import (
    FOREBAY,
    PASS_THROUGH,
    Panel,
    Proof,
    Side,
    chart,
    doubts,
    load_proof,
    setting,
    summarise,
    table,
    verdicts,
    write_proof_report,
)
from forebay.lab.report.words import Words as Language
from forebay.lab.sim.profiles import find_profile
from forebay.lab.workload.plan import Workload

PROFILE = "h100/8b/fp16/tp1"
MAX_MODEL_LEN = 16_384
MIXES = {mix.name: mix for mix in (HEAVY, MEDIUM, PARTS)}
SHORT_CALM, SHORT = 0.12, 0.4
"""Of the first mix's phases: those of the others, so that all together take four minutes."""
TOKENS_PER_WRITE = 4
"""A stream's events carry so many tokens, as busy engines' do: two cores are to be enough."""
POLL_S = 0.05
LOOPBACK = "127.0.0.1"


class ProveWords(Words, frozen=True, kw_only=True):
    """What the command line says."""

    seconds: float = 25.0
    rate: float = 70.0
    speed: float = 1.0
    port: int = 0
    seed: int = 1
    panels: str = ",".join(MIXES)
    svg: Path | None = None
    stored: Path | None = None


def prove(words: ProveWords, delivery: Delivery) -> int:
    """Measure, or read what was measured, and deliver it; 1 when the result is not valid."""
    if words.svg is not None and not words.svg.resolve().parent.is_dir():
        raise ConfigError(f"{words.svg} cannot be written: name a file in a folder that exists.")
    if words.stored is not None:
        return _give(load_proof(words.stored), words, delivery)
    mixes = _mixes(words.panels)
    if words.port:
        # Told now, in one sentence, instead of by a process that does not start.
        bind(LOOPBACK, words.port).close()
    with LiveView(delivery.output.terminal) as view:
        proving = _Proving(words, mixes, view, delivery.output)
        try:
            proof = uvloop.run(proving.proof())
        except asyncio.CancelledError:
            return 128 + proving.ended_by
    return _give(proof, words, delivery)


class _Proving:
    """One measurement of both sides."""

    def __init__(
        self, words: ProveWords, mixes: Sequence[Mix], view: Observer, output: Output
    ) -> None:
        self._words = words
        self._mixes = mixes
        self._view = view
        self._output = output
        self._clock = SystemClock()
        self.ended_by = signal.SIGTERM

    async def proof(self) -> Proof:
        """Every mix through both sides, each time with a fresh engine and a fresh store."""
        task = asyncio.current_task()
        assert task is not None
        # Else files would stay behind; Ctrl-C cancels by itself.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, self._end, task, number)
        panels = [await self._panel(mix) for mix in self._mixes]
        why_not = doubts(panels, Language())
        return Proof(
            panels=tuple(panels),
            rate_per_s=self._words.rate,
            profile=find_profile(PROFILE).name,
            speed=self._words.speed,
            valid=not why_not,
            why_not=why_not,
        )

    async def _panel(self, mix: Mix) -> Panel:
        seconds = self._words.seconds
        calm_s, phase_s = (
            (seconds, seconds)
            if mix is self._mixes[0]
            else (max(1.0, SHORT_CALM * seconds), max(1.0, SHORT * seconds))
        )
        sides = []
        for name in (PASS_THROUGH, FOREBAY):
            with tempfile.TemporaryDirectory(prefix="forebay-prove-") as folder:
                sides.append(await self._side(name, Path(folder), mix, (calm_s, phase_s)))
        return Panel(
            mix=mix.name,
            share=mix.percent / 100,
            calm_s=calm_s,
            phase_s=phase_s,
            sides=tuple(sides),
            summary=tuple(summarise(side, mix.name) for side in sides),
        )

    def _end(self, task: asyncio.Task[Proof], number: signal.Signals) -> None:
        self.ended_by = number
        task.cancel()

    async def _side(
        self, name: str, folder: Path, mix: Mix, lengths_s: tuple[float, float]
    ) -> Side:
        write_corpus(folder)
        calm_s, phase_s = lengths_s
        words = self._words
        alone = workload(folder, words.rate, calm_s, mix, larger=False)
        both = workload(folder, words.rate, phase_s, mix)
        async with AsyncExitStack() as stack:
            engine, engine_url = await stack.enter_async_context(self._engine(folder))
            gateway, url = await stack.enter_async_context(
                self._gateway(folder, engine_url, mix, admission=name == FOREBAY)
            )
            children = {"gateway": gateway, "engine": engine}
            light = await self._bench(name, url, alone, words.seed)
            before = {which: child.cpu_s() for which, child in children.items()}
            began_at = self._clock.now()
            mixed = await self._bench(name, url, both, words.seed + 1)
            passed_s = min(phase_s, self._clock.now() - began_at)
            for child in children.values():
                child.check()
            cpu = {
                which: (child.cpu_s() - before[which]) / passed_s
                for which, child in children.items()
            }
        return msgspec.convert({"name": name, "cpu": cpu, "light": light, "mixed": mixed}, Side)

    @asynccontextmanager
    async def _engine(self, folder: Path) -> AsyncIterator[tuple[Child, str]]:
        words = [
            *("simulate", "serve", "--port", "0", "--json", "--profile", PROFILE),
            *("--set", f"max_model_len={MAX_MODEL_LEN}", "--output", "cap"),
            *("--tokens-per-write", str(TOKENS_PER_WRITE), "--speed", f"{self._words.speed:g}"),
        ]
        async with running("simulated engine", words, folder, heard=True) as engine:
            try:
                url = str(msgspec.json.decode(await engine.line())["replicas"][0])
            except (msgspec.MsgspecError, KeyError, IndexError, TypeError) as error:
                raise engine.failed() from error
            yield engine, url

    @asynccontextmanager
    async def _gateway(
        self, folder: Path, engine_url: str, mix: Mix, *, admission: bool
    ) -> AsyncIterator[tuple[Child, str]]:
        kv_tokens = find_profile(PROFILE).kv_tokens()
        text = configuration(engine_url, kv_tokens, mix, admission=admission)
        (folder / "forebay.toml").write_text(text, encoding="utf-8")
        port = self._words.port or _free_port()
        words = ["serve", "--host", LOOPBACK, "--port", str(port), "--store", "store"]
        async with running("gateway", words, folder) as gateway:
            await self._ready(gateway, port)
            yield gateway, f"http://{LOOPBACK}:{port}"

    async def _ready(self, gateway: Child, port: int) -> None:
        until = self._clock.now() + START_S
        while not await asyncio.to_thread(_is_ready, port):
            gateway.check()
            if self._clock.now() > until:
                raise Unavailable(f"the gateway was not ready within {START_S:g} s.")
            await asyncio.sleep(POLL_S)
        gateway.check()

    async def _bench(self, side: str, url: str, load: Workload, seed: int) -> RunResult:
        label = f"{side.replace('_', '-')}, {load.name}"
        if not self._output.interactive:
            rate, seconds = self._words.rate, load.duration_s
            self._output.note(f"{label}: {rate:g} requests/s for {seconds:g} s")

        def watch(snapshot: Snapshot) -> None:
            self._view(msgspec.structs.replace(snapshot, label=label))

        target = Target(base_url=url, model=f"forebay/{KB}")
        options = BenchOptions(target=target, workload=load, seed=seed)
        return await run_bench(options, watch)


def _give(proof: Proof, words: ProveWords, delivery: Delivery) -> int:
    language = delivery.language

    def draw(path: Path, language: Language) -> None:
        write_proof_report(proof, path, language)

    def tell(output: Output) -> None:
        output.line(setting(proof, language))
        output.line()
        output.table(*table(proof, language))
        output.line()
        for sentence in verdicts(proof, language):
            output.line(sentence)
        for panel in proof.panels:
            told = f"{language('cpu_share')}, {language(f'proof_{panel.mix}_phase')}"
            output.line(f"{told}: {_shares(panel.sides, language)}")

    delivery.give(msgspec.json.encode(proof), draw, tell)
    if not proof.valid:
        delivery.not_valid(doubts(proof.panels, language) or proof.why_not)
    if words.svg is not None:
        try:
            words.svg.write_text(svg(chart(proof, language)), encoding="utf-8")
        except OSError as error:
            raise Unavailable(f"{words.svg} cannot be written: {error.strerror}.") from error
        delivery.output.note(f"written: {words.svg}")
    return 0 if proof.valid else 1


def _mixes(names: str) -> list[Mix]:
    """The mixes that are named, in their own order; ``ConfigError`` for a name of none."""
    wanted = {name.strip() for name in names.split(",")} - {""}
    if not wanted or (unknown := sorted(wanted - MIXES.keys())):
        named = f", not {unknown[0]}" if wanted else ""
        raise ConfigError(f"--panels takes some of {', '.join(MIXES)}{named}.")
    return [mix for name, mix in MIXES.items() if name in wanted]


def _shares(sides: tuple[Side, ...], name: Callable[[str], str]) -> str:
    def of(cpu: Mapping[str, float], result: RunResult) -> str:
        told = [f"{name(f'proof_{which}')} {share:.0%}" for which, share in cpu.items()]
        if result.generator is not None:
            told.append(f"{name('generator')} {result.generator.cpu_share:.0%}")
        return ", ".join(told)

    return "; ".join(f"{name(side.name)}: {of(side.cpu, side.mixed)}" for side in sides)


def _free_port() -> int:
    with bind(LOOPBACK, 0) as probe:
        port: int = probe.getsockname()[1]
    return port


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
