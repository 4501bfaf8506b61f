"""What ``forebay prove`` serves and asks: a tiny corpus, its questions, mixes of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.distributions import LogNormal
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.queries import QueriesSpec

KB = "proof"


class Mix(NamedTuple):
    """Light requests with larger ones among them; ``percent`` are of the kind ``name``."""

    name: Literal["heavy", "medium", "parts"]
    percent: int
    input_tokens: int
    output_tokens: int
    deadline_s: float
    window_tokens: int = 16_384
    """Of the gateway: a text that does not fit it is answered in parts."""


HEAVY = Mix("heavy", 5, 8_000, 800, 20.0)
"""F1.1: one in twenty."""
MEDIUM = Mix("medium", 20, 2_000, 400, 10.0)
"""About 2,400 tokens with rules and passages."""
PARTS = Mix("parts", 5, 6_100, 256, 12.0, window_tokens=6_144)
"""Some 25,000 characters."""
QUESTIONS = "questions.txt"
_MEMOS: tuple[tuple[str, str, str], ...] = (
    (
        "Berths",
        (
            "Berth 3 takes ships up to 240 metres long and 12.5 metres of draught. Berth 4 is "
            "closed for dredging until the end of March; barges lie at the east quay meanwhile."
        ),
        "How long may a ship at berth 3 be?",
    ),
    (
        "Crane limits",
        (
            "The two quay cranes lift 65 tonnes to a reach of 38 metres. Lifting stops when the "
            "gusts exceed 20 metres a second, and starts again after ten calm minutes."
        ),
        "At what wind do the cranes stop?",
    ),
    (
        "Pilots",
        (
            "A pilot is compulsory above 110 metres and for every tanker. Order one six hours "
            "before arrival on channel 12 or by the port's web form."
        ),
        "When must a pilot be ordered?",
    ),
    (
        "Cold store",
        (
            "The cold store keeps 2,400 pallets at minus 22 degrees. A door open for more than "
            "three minutes raises an alarm at the shift desk, which must answer it in writing."
        ),
        "How many pallets fit into the cold store?",
    ),
    (
        "Gate hours",
        (
            "Trucks pass the north gate from five in the morning until ten at night. On Sundays "
            "only reefers and live animals are let in, with a slot booked the day before."
        ),
        "Who may pass the gate on Sundays?",
    ),
    (
        "Dangerous goods",
        (
            "Explosives never stay overnight. Class 3 liquids wait in bay 9 for at most 72 hours, "
            "and the fire brigade gets the list twice a day."
        ),
        "How long may class 3 liquids wait?",
    ),
    (
        "Invoices",
        (
            "Harbour dues are invoiced on departure and payable within 21 days. Whoever pays "
            "within a week deducts two percent; complaints go to the accounts office first."
        ),
        "Within how many days are harbour dues payable?",
    ),
    (
        "Bunkering",
        (
            "Fuel is taken at berths 1 and 2 by day only. The chief engineer and the terminal "
            "sign the checklist before the first hose is connected, and again at the end."
        ),
        "Where can a ship take fuel?",
    ),
    (
        "Lost property",
        (
            "Found things are kept for six months at the seamen's house. Papers and keys go to "
            "the harbour police on the same day."
        ),
        "What happens to keys that were found?",
    ),
    (
        "Rail siding",
        (
            "Block trains of up to 620 metres leave at 04:40 and 19:15. Containers must be at the "
            "siding two hours before; later ones wait for the next train."
        ),
        "When do the block trains leave?",
    ),
    (
        "Shore power",
        (
            "Shore power of 6.6 kilovolts is offered at berths 2 and 3. Ships that use it pay a "
            "quarter less in harbour dues for that call."
        ),
        "What do ships with shore power save?",
    ),
    (
        "Ice season",
        (
            "From December to March the tug Alma keeps the basin open. Ships below ice class 1C "
            "need her help and pay for each hour begun."
        ),
        "Which ships need the tug in winter?",
    ),
)


def write_corpus(folder: Path) -> Path:
    """Write the documents and, beside them, the file of questions; the documents' folder."""
    documents = folder / KB
    documents.mkdir()
    for title, text, _ in _MEMOS:
        name = title.lower().replace(" ", "-")
        (documents / f"{name}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
    questions = "".join(f"{question}\n" for _, _, question in _MEMOS)
    (folder / QUESTIONS).write_text(questions, encoding="utf-8")
    return documents


def workload(
    folder: Path, rate: float, seconds: float, mix: Mix, *, larger: bool = True
) -> Workload:
    """Light requests and a mix's ``larger`` ones at this rate, or light ones alone.

    Every question is made unlike the others by a few more words: equal ones would be answered
    from the engine's prefix cache.
    """
    asked = QueriesSpec(file=QUESTIONS, zipf=0.0)
    kinds = [
        Kind(
            name="light",
            share=100 - mix.percent,
            queries=asked,
            input_tokens=LogNormal(mean=32, cv=0.3, min=20, max=200),
            output_tokens=LogNormal(mean=32, cv=0.5, min=4, max=128),
            deadline_s=2.0,
        )
    ]
    if larger:
        kinds.append(
            Kind(
                name=mix.name,
                share=mix.percent,
                queries=asked,
                input_tokens=mix.input_tokens,
                output_tokens=mix.output_tokens,
                deadline_s=mix.deadline_s,
            )
        )
    name = f"light with {mix.percent} % {mix.name}" if larger else "light"
    arrivals = PoissonArrivals(rate=rate, duration_s=seconds)
    return Workload(WorkloadSpec(name=name, arrivals=arrivals, kinds=tuple(kinds)), folder)


def configuration(engine_url: str, kv_tokens: int, mix: Mix, *, admission: bool) -> str:
    """The gateway's ``forebay.toml`` for a mix; both sides differ in one word.

    Bounds other than admission's are so wide that they never act.
    """
    return f"""
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
window_tokens = {mix.window_tokens}
max_passages = 3
[generation]
backend = "openai"
# What the engines do is measured, so nothing else may answer for them.
[generation.ladder]
enabled = false
[generation.engine]
max_connections = 20000
max_waiting = 100000
[[generation.pools]]
name = "engine"
base_urls = ["{engine_url}/v1"]
model = "sim"
max_input_tokens = 12000
max_output_tokens = 1024
[admission]
enabled = {"true" if admission else "false"}
passage_tokens = 80
prompt_tokens = 300
[admission.pools.engine.gate]
max_tokens = {int(0.95 * kv_tokens)}
[telemetry]
access_log = false
"""
