"""Sizes of requests in bands of engine time, and what each band usually asks for.

A band holds requests whose work (seconds of the engine that they take from others) differs by less
than ``RATIO``. For each, the arrivals of late say its rate, its usual tokens, and the time that its
clients allow: enough to tell by processor sharing whether all bands up to one would fit into the
engines if they were alone, and how many of a band are at work at once (Little's law, F0.3).
"""

from __future__ import annotations

import math

from forebay.policy.engine_model import EngineModel

RATIO = 1.5
ONE_SIZE = 3
"""Bands that lie nearer are of one size."""
LEAST_WORK_S = 1e-4
MEMORY_S = 10.0
"""Over about so long are rates learned."""
DEADLINE_SHARE = 0.85
"""Of the time that clients allow, this is planned for."""
BURST = 2.0
"""Standard deviations above the mean number at work that headroom covers."""
FORGOTTEN = 0.05
"""Requests a second, below which a band is not there."""
MOST_TIME_S = 1e6


def band_of(work_s: float) -> int:
    """The band of a request that takes so much of an engine."""
    work_s = min(MOST_TIME_S, max(LEAST_WORK_S, work_s))
    return math.floor(math.log(work_s / LEAST_WORK_S) / _LOG_RATIO)


_LOG_RATIO = math.log(RATIO)


class Band:
    """Arrivals of one size of late; sums fade with ``MEMORY_S``."""

    __slots__ = (
        "_at",
        "_began",
        "at_work",
        "count",
        "input",
        "left",
        "number",
        "output",
        "urgent_input",
        "urgent_output",
    )

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self._at = self._began = now
        self.count = self.input = self.output = self.left = 0.0
        self.urgent_input = self.urgent_output = 0.0
        self.at_work = 0

    def fade(self, now: float) -> None:
        """Let time pass."""
        passed_s = now - self._at
        if passed_s > 0:
            kept = math.exp(-passed_s / MEMORY_S)
            self.count *= kept
            self.input *= kept
            self.output *= kept
            self.left *= kept
            self.urgent_input *= kept
            self.urgent_output *= kept
            self._at = now

    def arrived(self, input_tokens: float, output_tokens: float, left_s: float, now: float) -> None:
        """Note one."""
        self.fade(now)
        self.count += 1
        self.input += input_tokens
        self.output += output_tokens
        left_s = min(left_s, MOST_TIME_S)
        urgency = 1 / max(left_s, 1e-3)
        self.left += urgency
        self.urgent_input += input_tokens * urgency
        self.urgent_output += output_tokens * urgency

    def rate(self, now: float) -> float:
        """Requests a second of late; of a young band over its age, at least a second."""
        self.fade(now)
        age_s = max(1.0, now - self._began)
        return self.count / (MEMORY_S * (1 - math.exp(-age_s / MEMORY_S)))

    @property
    def usual(self) -> tuple[float, float, float]:
        """Input, output, and seconds allowed; the harmonic mean, which leans to the urgent."""
        count = max(self.count, 1e-9)
        return self.input / count, self.output / count, count / max(self.left, 1e-9)

    @property
    def urgent(self) -> tuple[float, float]:
        """Input and output, each weighed by how urgent it was.

        Time is linear in both, so what these take over the harmonic mean that is allowed is the
        mean of what each takes over what it is allowed; a band may hold unlike requests.
        """
        left = max(self.left, 1e-9)
        return self.urgent_input / left, self.urgent_output / left


class Usual:
    """One band as it is planned for."""

    __slots__ = (
        "allowed_s",
        "at_work",
        "band",
        "input",
        "output",
        "rate",
        "reads_s",
        "safe",
        "urgent_input",
        "urgent_output",
    )

    def __init__(self, band: Band, now: float) -> None:
        self.band = band.number
        self.rate = band.rate(now)
        self.input, self.output, self.allowed_s = band.usual
        self.urgent_input, self.urgent_output = band.urgent
        self.safe = False
        self.at_work = 0.0
        self.reads_s = 0.0  # of each second of an engine, for its prompts


class Bands:
    """All bands of a pool of engines."""

    def __init__(self) -> None:
        self._bands: dict[tuple[int, int], Band] = {}
        self.usual: list[Usual] = []
        self._smaller: dict[int, list[Usual]] = {}
        self.safe_to = -1
        """Bands up to this one fit into the engines together."""

    def arrived(
        self, band: int, input_tokens: float, output_tokens: float, left_s: float, now: float
    ) -> None:
        """Note a request."""
        # Short prompts with long answers and the reverse may be as much work: they differ in need.
        key = band, max(1, int(output_tokens)).bit_length() // 2
        found = self._bands.get(key)
        if found is None:
            found = self._bands[key] = Band(band, now)
        found.arrived(input_tokens, output_tokens, left_s, now)

    def look(
        self, model: EngineModel, now: float, replicas: int, bounds: tuple[float, float]
    ) -> None:
        """Plan anew: which bands fit together into engines of so many places and tokens each."""
        most, tokens = bounds
        self._bands = {key: band for key, band in self._bands.items() if band.rate(now) > FORGOTTEN}
        self.usual = [Usual(self._bands[key], now) for key in sorted(self._bands)]
        self.safe_to = -1
        replicas = max(1, replicas)
        prefill = work = places = held = 0.0
        for at, one in enumerate(self.usual):
            a_replica = one.rate / replicas
            one.reads_s = a_replica * model.read_s(one.input)
            prefill += one.reads_s
            work += a_replica * model.work_s(one.input, one.output)
            fits = work < 0.95
            if fits:
                token_s = model.fixed_s / (1 - work)
                places = held = 0.0
                at_work = []
                for other in self.usual[: at + 1]:
                    takes_s = model.prompt_s(other.input) / (1 - prefill) + other.output * token_s
                    urgent_s = model.prompt_s(other.urgent_input) / (1 - prefill)
                    urgent_s += other.urgent_output * token_s
                    at_work.append(other.rate / replicas * takes_s)
                    places += at_work[-1]
                    held += at_work[-1] * (other.input + other.output / 2)
                    fits = fits and urgent_s <= DEADLINE_SHARE * other.allowed_s
                fits = fits and places <= most and held <= tokens
            if not fits:
                # Its neighbours are of its size: one kind falls into two or three bands.
                self.safe_to = min(self.safe_to, one.band - ONE_SIZE)
                break
            self.safe_to = one.band
            for other, count in zip(self.usual, at_work, strict=False):
                other.at_work = count
        for one in self.usual:
            one.safe = one.band <= self.safe_to
        self._smaller.clear()

    def get(self, band: int) -> Band | None:
        """What is known of a band."""
        found = [one for (number, _), one in self._bands.items() if number == band]
        return max(found, key=lambda one: one.count, default=None)

    def smaller(self, band: int) -> list[Usual]:
        """Safe bands of another size than ``band``: requests of one kind fall into two or three."""
        found = self._smaller.get(band)
        if found is None:
            found = [one for one in self.usual if one.band <= band - ONE_SIZE and one.safe]
            self._smaller[band] = found
        return found
