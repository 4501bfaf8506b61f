"""Where everything is put together: the stages of an answer as a list, the gateway's parts."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec
import uvloop

from forebay import __version__
from forebay.app.admitting import open_admission, small_pool
from forebay.app.bearer_keys import generation_keys
from forebay.app.bounding import open_bounded
from forebay.app.caching import Charging, TierOpener, Tiers
from forebay.app.eventing import Events, open_events
from forebay.app.fragile import open_fragility
from forebay.app.guarding import Guarded, open_guarded
from forebay.app.ladders import open_ladder, over_engines
from forebay.app.latency import unlisted, wake_promptly
from forebay.app.overriding import Overriding
from forebay.app.prefilling import Around, open_prewarming
from forebay.app.prewarming import Prewarmer
from forebay.app.questioning import with_questions
from forebay.app.remote import RemoteWriting
from forebay.app.reranking import Reranking, open_ranked_tiers
from forebay.app.rewarming import open_rewarming
from forebay.app.runtime import Process, Reading, open_process, store_folder
from forebay.app.sentence_record import KbsWithSentences
from forebay.app.settings import Settings, environment
from forebay.app.sharing import authority_of, open_sharing, shortcomings
from forebay.app.warming import Warmer, open_warming
from forebay.app.widening import open_widening
from forebay.cache.heat import HeatedRetriever
from forebay.context import CitationStream, ContextSettings, PromptBuilder
from forebay.gateway.app import GatewayApp
from forebay.gateway.build import build_app, build_mcp
from forebay.gateway.identity import Identity, build_table
from forebay.gateway.mcp import McpTools
from forebay.gateway.parts import GatewayParts, Readiness, always_ready
from forebay.gateway.settings import ServerSettings
from forebay.generation.nearest import nearest
from forebay.generation.openai import OpenAIGenerator
from forebay.generation.opening import open_generator
from forebay.generation.pools import Pool
from forebay.generation.settings import EngineSettings, GenerationSettings, PoolSettings
from forebay.generation.tokenizing import open_tokens
from forebay.ingest import EstimatedTokenCounter, TextSplitter
from forebay.kernel.clock import WallClock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import GenerationRequest, Retriever, TokenCounter
from forebay.pipeline.answer import AnswerParts, AnswerPipeline
from forebay.pipeline.answer_cache import CachedAnswering
from forebay.pipeline.asking import Charges, claimant
from forebay.pipeline.chunk_keys import GuardedKnowledge
from forebay.pipeline.fragility import Fragility
from forebay.pipeline.indexing import IndexingRetriever
from forebay.pipeline.knowledge import KnowledgeService
from forebay.pipeline.listening import Listening
from forebay.pipeline.messages import Answering, Citation
from forebay.pipeline.scenes import Scenes
from forebay.pipeline.senses import AnswersBySense
from forebay.pipeline.splitting import Splitting, SplittingAnswers
from forebay.policy.admission import Admission
from forebay.policy.bulkhead import BoundedRetriever
from forebay.policy.connections import ConnectionSettings, ConnectionSizer
from forebay.policy.ladder import LadderRetriever
from forebay.policy.quota import SharedQuotas
from forebay.query import KindedRetriever
from forebay.rerank import SimilarityReranker, SimilaritySettings
from forebay.telemetry.metrics import Metrics
from forebay.telemetry.opening import Telemetry, open_telemetry
from forebay.telemetry.settings import TelemetrySettings

T = TypeVar("T")
FiguresOf = Callable[[Metrics], Callable[[], Awaitable[bytes]]]
"""From the figures of this process to the page of all."""
CALL_S = 24 * 3600.0
SWITCH_S = 0.0005


class Answerer(msgspec.Struct, frozen=True):
    """The answering half of a process."""

    process: Process
    answering: Listening
    admission: Admission
    retriever: BoundedRetriever
    ladder: LadderRetriever
    reranking: Reranking
    quotas: Overriding
    tiers: Tiers
    guarded: Guarded
    shared: SharedQuotas | None = None
    warmer: Warmer | None = None
    prewarmer: Prewarmer | None = None
    engines: Sequence[Pool] = ()
    fragility: Fragility | None = None

    def reload(self, settings: Settings) -> None:
        """Take over the part of the settings that needs no restart, keys apart."""
        self.quotas.configure(settings.admission)
        self.tiers.reload(settings.cache)

    def statistics(self) -> dict[str, dict[str, float]]:
        """Figures of the gates, retrieval's included, and of connections to engines."""
        now = self.process.reading.clock.now()
        found = {**self.admission.statistics(), "retrieval": self.retriever.statistics()}
        for pool in self.engines:
            found.setdefault(pool.settings.name, {}).update(pool.connections(now))
        return found

    def kb_names(self) -> tuple[str, ...]:
        """Knowledge bases that can be asked."""
        return self.process.reading.indexes.names()


class Service(msgspec.Struct, frozen=True):
    """A process that serves HTTP."""

    app: GatewayApp
    answerer: Answerer
    events: Events

    def shortcomings(self) -> tuple[str, ...]:
        """What works at less than its best, in sentences; cheap enough for every probe."""
        writing = self.answerer.process.writing
        own = writing.shortcomings() if writing is not None else ()
        warmer = self.answerer.warmer
        cold = warmer.shortcomings() if warmer is not None else ()
        leases = self.answerer.process.reading.leases
        apart = leases.shortcomings() if leases is not None else ()
        below = (*self.answerer.ladder.shortcomings(), *self.answerer.reranking.shortcomings())
        return (*own, *shortcomings(self.answerer.shared), *apart, *cold, *below)

    def waiting(self) -> tuple[str, ...]:
        """What readiness still waits for beside the folders."""
        parts = (self.answerer.warmer, self.answerer.prewarmer)
        return tuple(why for part in parts if part is not None for why in part.waiting())

    async def warmed(self) -> None:
        """Wait until engines and caches were warmed, or had their time."""
        for part in (self.answerer.warmer, self.answerer.prewarmer):
            if part is not None:
                await part.done()


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a server's coroutine on the fast loop.

    Threads that parse, search and count hand the interpreter over after half a millisecond
    instead of five, and the loop's own thread is let run as soon as it wakes: its tail is what
    users wait for.
    """
    sys.setswitchinterval(SWITCH_S)
    wake_promptly()
    return uvloop.run(unlisted(work))


@asynccontextmanager
async def open_answerer(process: Process, *, share: bool = False) -> AsyncIterator[Answerer]:
    """Build the stages of an answer, outermost first: admit, retrieve, prompt, generate, cite.

    ``share``: charge the quotas that the service's processes have in common.
    """
    reading, settings, counter = process.reading, process.reading.settings, EstimatedTokenCounter()
    async with AsyncExitStack() as stack:
        keyed = await asyncio.to_thread(generation_keys, settings.generation, environment())
        opened = open_generator(keyed, counter=counter, sizing=_sizing)
        generator = await stack.enter_async_context(opened)
        tokens = await stack.enter_async_context(open_tokens(_remote(keyed), counter))
        shared = await _shared(process, stack) if share else None
        entrance = open_admission(settings, reading.clock, store_folder(settings), shared)
        admission, quotas = await stack.enter_async_context(entrance)
        opener, reranking = await open_ranked_tiers(stack, reading, share=share)
        guarded = await stack.enter_async_context(open_guarded(reading))
        fragility = await stack.enter_async_context(open_fragility(reading))
        ladder, retriever = await _retrieving(stack, reading, opener, admission, reranking)
        context = _within_pools(settings)
        prompting = PromptBuilder(context, counter, secrets.token_hex(8))
        parts = AnswerParts(
            retriever=_kept(opener, reading, reranking.over(retriever), prompting.version, guarded),
            prompting=opener.prompting(prompting, prompting.version),
            generator=generator,
            cite=Citing,
            admission=admission,
            count=partial(_count, counter),
            tokens=opener.tokens(tokens),
            serving=reading.versions,
            near=opener.near(prompting.version),
            fragility=fragility,
            widening=open_widening(reading, context),
            most_passages=context.max_passages,
        )
        parts = await asyncio.to_thread(with_questions, reading, opener.tiers, parts)
        warmer = await _warmed(stack, process, parts, share=share)
        answering = opener.answering(
            _answering(settings, parts, counter),
            prompting.version,
            _charging(admission, counter),
            lambda ctx: admission.desk.attended(claimant(ctx)),
        )
        around = Around(opener.tiers, parts, answering, retriever, admission)
        prewarmer = await _ahead(stack, process, around, serves=share)
        yield Answerer(
            process=process,
            answering=_heard(answering, opener, prewarmer),
            admission=admission,
            retriever=retriever,
            ladder=ladder,
            reranking=reranking,
            quotas=quotas,
            tiers=opener.tiers,
            guarded=guarded,
            shared=shared,
            warmer=warmer,
            prewarmer=prewarmer,
            engines=generator.pools if isinstance(generator, OpenAIGenerator) else (),
            fragility=fragility,
        )


async def _warmed(
    stack: AsyncExitStack, process: Process, parts: AnswerParts, *, share: bool
) -> Warmer | None:
    """What warms the engines, once for all processes: they are the same."""
    if not share or process.writing is None:
        return None
    reading = process.reading
    engine = reading.settings.generation.engine
    return await stack.enter_async_context(
        open_warming(parts.generator, parts.admission, engine, reading.clock)
    )


def _remote(settings: GenerationSettings) -> Sequence[PoolSettings]:
    """The pools whose engines are asked over the network."""
    return settings.pools if settings.backend == "openai" else ()


async def _ahead(
    stack: AsyncExitStack, process: Process, around: Around, *, serves: bool
) -> Prewarmer | None:
    """What is done before somebody asks."""
    tiers, retriever = around.tiers, around.retriever
    rewarming = open_rewarming(process.reading, tiers, retriever, serves=serves)
    await stack.enter_async_context(rewarming)
    return await stack.enter_async_context(open_prewarming(process, around, serves=serves))


def _heard(
    answering: CachedAnswering, opener: TierOpener, prewarmer: Prewarmer | None
) -> Listening:
    """The answering life, with what listens to it."""
    told = None if prewarmer is None else prewarmer.asked
    sessions, recollecting = opener.sessions(), answering.recollect
    return Listening(answering, sessions, told, WallClock(), recollecting)


async def _charge_question(
    admission: Admission, counter: TokenCounter, ctx: RequestContext, question: str
) -> int:
    """What an answer costs that no engine has to write: its question."""
    tokens = counter.count(question)
    await admission.charge(claimant(ctx), "chat", tokens, ctx.scene.name)
    return tokens


def _kept(
    opener: TierOpener, reading: Reading, retriever: Retriever, template: str, guarded: Guarded
) -> IndexingRetriever:
    """Retrieval with what was found before, an eye on what is found often and on what lacks."""
    kept = HeatedRetriever(opener.retriever(retriever, template), guarded.heat)
    return IndexingRetriever(kept, reading.versions.lack)


async def _retrieving(
    stack: AsyncExitStack,
    reading: Reading,
    opener: TierOpener,
    admission: Admission,
    reranking: Reranking,
) -> tuple[LadderRetriever, BoundedRetriever]:
    """Retrieval below the caches, innermost first: the ladder of rungs, and a bound on it."""
    embedder = opener.embedder(reading.embedder)
    ladder = await stack.enter_async_context(open_ladder(reading, embedder, reranking.parts))
    kinded = KindedRetriever(ladder) if reading.settings.query.enabled else ladder
    return ladder, open_bounded(kinded, reading.settings, admission)


def _charging(admission: Admission, counter: TokenCounter) -> Charging:
    return Charging(
        partial(_charge_question, admission, counter), partial(_charge_at_once, admission)
    )


def _charge_at_once(admission: Admission, ctx: RequestContext, tokens: int) -> bool:
    return admission.charge_at_once(claimant(ctx), "chat", tokens, ctx.scene.name)


def _within_pools(settings: Settings) -> ContextSettings:
    """No prompt is built that no engine pool takes: passages are left out before."""
    context = settings.context
    if settings.generation.backend != "openai":
        return context
    usual = (one for one in settings.generation.pools if one.name != small_pool(settings))
    longest = max((pool.max_input_tokens for pool in usual), default=0)
    share = min(context.input_share, longest / context.window_tokens)
    return msgspec.structs.replace(context, input_share=share) if share else context


def _answering(settings: Settings, parts: AnswerParts, counter: TokenCounter) -> Answering:
    """Texts beyond the window are answered in parts, questions of several senses by sense."""
    parts = over_engines(parts, settings, counter)
    pipeline = AnswerPipeline(parts)
    answering = _in_parts(settings, parts, pipeline, counter)
    if parts.questions is None or settings.query.ambiguity != "each":
        return answering
    return AnswersBySense(answering, pipeline, parts)


def _in_parts(
    settings: Settings, parts: AnswerParts, pipeline: AnswerPipeline, counter: TokenCounter
) -> Answering:
    """Only engines that write can merge."""
    splitting, context = settings.generation.splitting, _within_pools(settings)
    if not splitting.enabled or settings.generation.backend == "extractive":
        return pipeline
    # Every part is a passage, and so is what was found in it.
    roomy = msgspec.structs.replace(context, max_passages=100, history_tokens=0)
    return SplittingAnswers(
        pipeline,
        parts,
        Splitting(
            splitter=TextSplitter(counter),
            nearest=nearest,
            prompting=PromptBuilder(roomy, counter, secrets.token_hex(8)),
            settings=splitting,
            window_tokens=int(context.window_tokens * context.input_share),
        ),
    )


def _sizing(engine: EngineSettings) -> ConnectionSizer:
    return ConnectionSizer(
        ConnectionSettings(least=engine.min_connections, most=engine.max_connections)
    )


async def _shared(process: Process, stack: AsyncExitStack) -> SharedQuotas | None:
    settings, clock = process.reading.settings, process.reading.clock
    authority = authority_of(
        settings.coordination, store_folder(settings), clock, writes=process.writing is not None
    )
    if authority is None:
        return None
    return await stack.enter_async_context(
        open_sharing(settings.coordination, authority, clock, settings.admission.max_buckets)
    )


@asynccontextmanager
async def open_reading(settings: Settings) -> AsyncIterator[Answerer]:
    """A process that only reads, for commands; works beside a running server."""
    async with open_process(settings, write=False) as process, open_answerer(process) as answerer:
        yield answerer


@asynccontextmanager
async def open_service(
    process: Process, readiness: Callable[[Service], Readiness], figures: FiguresOf
) -> AsyncIterator[Service]:
    """The HTTP application over a process; changes go to its writing half or to the socket."""
    telemetry = open_telemetry(process.reading.settings.telemetry, __version__)
    try:
        async with open_answerer(process, share=True) as answerer:
            telemetry.metrics.watch_pools(answerer.statistics)
            telemetry.metrics.watch_caches(answerer.tiers.statistics)
            telemetry.metrics.watch_breakers(answerer.ladder.statistics)
            telemetry.metrics.watch_reranking(answerer.reranking.statistics)
            if process.writing is not None:
                telemetry.metrics.watch_sentences(process.writing.sentences_under_way)
            telemetry.metrics.watch_guard(answerer.guarded.guard.statistics)
            if answerer.fragility is not None:
                telemetry.metrics.watch_fragility(answerer.fragility.statistics)
            if answerer.shared is not None:
                telemetry.metrics.watch_quotas(answerer.shared.statistics)
            held: list[Service] = []
            parts = _parts(answerer, telemetry, lambda: readiness(held[0]))
            parts = msgspec.structs.replace(parts, figures=figures(telemetry.metrics))
            coordination = process.reading.settings.coordination
            poke = process.reading.versions.poke
            async with open_events(coordination, answerer.tiers, poke) as events:
                service = Service(build_app(parts), answerer, events)
                answerer.tiers.replays = service.app.replays
                held.append(service)
                yield service
    finally:
        await asyncio.to_thread(telemetry.close)


def mcp_tools(answerer: Answerer) -> McpTools:
    """The MCP tools of a process that only reads."""
    telemetry = open_telemetry(TelemetrySettings(access_log=False), __version__)
    return build_mcp(_parts(answerer, telemetry, always_ready))


def _parts(
    answerer: Answerer, telemetry: Telemetry, readiness: Callable[[], Readiness]
) -> GatewayParts:
    reading = answerer.process.reading
    settings = reading.settings
    embedder = reading.embedder
    changes = answerer.process.writing or RemoteWriting(
        store_folder(settings), reading.clock, CALL_S
    )
    kbs = KbsWithSentences(reading.reader, settings)
    knowledge = KnowledgeService(reading.reader, kbs, changes, reading.threads.run, reading.clock)
    return GatewayParts(
        answering=answerer.answering,
        recollecting=answerer.answering.recollect,
        replays_max_bytes=settings.cache.answers.replays_max_bytes,
        knowledge=GuardedKnowledge(knowledge, answerer.guarded.guard),
        chunks=answerer.guarded.chunks,
        identity=Identity(build_table(settings.tenants)),
        metrics=telemetry.metrics,
        sinks=telemetry.sinks,
        begin_trace=telemetry.begin_trace,
        clock=reading.clock,
        settings=_server_settings(settings),
        quotas=answerer.quotas,
        embedder=embedder,
        reranker=None if embedder is None else SimilarityReranker(embedder, _similarity(settings)),
        readiness=readiness,
        count_tokens=partial(_count, EstimatedTokenCounter()),
        charging=Charges(answerer.admission),
        engines=settings.generation.backend != "extractive",
        scenes=Scenes(lambda: answerer.quotas.effective, settings.server.deadlines.answer_ms),
        version=__version__,
    )


def _similarity(settings: Settings) -> SimilaritySettings:
    """Where this embedder's cosines begin to mean something: e5's own are crowded near 0.8."""
    if settings.embedding.backend != "e5":
        return SimilaritySettings(middle=0.5, width=0.08)
    if settings.embedding.center_languages:
        return SimilaritySettings()
    return SimilaritySettings(middle=0.84, width=0.02)


def _count(counter: TokenCounter, texts: Sequence[str]) -> int:
    return sum(counter.count(text) for text in texts)


def _server_settings(settings: Settings) -> ServerSettings:
    """Other model names go to the first configured kb unless the operator says otherwise."""
    if settings.server.default_kb or not settings.knowledge:
        return settings.server
    return msgspec.structs.replace(settings.server, default_kb=next(iter(settings.knowledge)))


class Citing:
    """The citations of one answer, from marker numbers to documents."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._stream = CitationStream(request.passages)

    def feed(self, text: str) -> str:
        """Return the text that is certain after ``text`` arrived."""
        return self._stream.feed(text)

    def finish(self, *, refused: bool = False) -> tuple[str, Sequence[Citation], int]:
        """Return the rest, the citations by number, the count of bad markers."""
        rest, cited = self._stream.finish(refused=refused)
        return rest, [self._citation(number) for number in cited.numbers], cited.invalid

    def _citation(self, number: int) -> Citation:
        hit = self._request.passages[number - 1]
        chunk = hit.chunk
        return Citation(
            index=number,
            document_id=chunk.document_id,
            chunk_id=str(chunk.chunk_id),
            title=chunk.title,
            source=chunk.source,
            text=chunk.text,
            score=hit.score,
            start=chunk.start,
            end=chunk.end,
            page=chunk.page,
            heading_path=chunk.heading_path,
        )
