"""The prompt: compiled templates, a token budget, passages that cannot pose as instructions.

The fence around the passages is derived from their text and the question, so whoever writes a
document cannot know it; role markers of common chat formats are broken inside passages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import resources

import jinja2
import msgspec

from forebay.context.language import language_of
from forebay.context.settings import ContextSettings
from forebay.kernel.documents import Hit
from forebay.kernel.errors import ContextTooLong, InvalidRequest
from forebay.kernel.stages import GenerationRequest, Message, Sampling, TokenCounter

LANGUAGES = ("zh", "en")
_MESSAGE_OVERHEAD_TOKENS = 4
# No tokenizer known here packs more characters into a token on average.
_MAX_CHARACTERS_PER_TOKEN = 32
# Markers with which chat formats separate roles; inside a passage they are only text.
_ROLE_MARKERS = re.compile(
    r"<\|[^|>\n]{1,40}\|>|<｜[^｜>\n]{1,40}｜>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>",
    re.IGNORECASE,
)
_ROLE_LINES = re.compile(r"^(\s*)(system|assistant|user|系统|助手|用户)(\s*[:：])", re.I | re.M)


class Passage(msgspec.Struct, frozen=True):
    """A passage as a template sees it."""

    number: int
    label: str
    text: str


class PromptBuilder:
    """Builds prompts; one per process, templates compiled once.

    The caller's own system messages are kept as additions that may not overrule the citing
    rules. History is kept newest first within its own budget. Passages are dropped from the end
    until the input fits; a question that cannot fit alone is ``ContextTooLong``.
    """

    def __init__(self, settings: ContextSettings, counter: TokenCounter, secret: str) -> None:
        self._settings = settings
        self._counter = counter
        self._secret = secret
        environment = jinja2.Environment(  # noqa: S701 - prompts are text, not HTML
            undefined=jinja2.StrictUndefined, trim_blocks=False, keep_trailing_newline=False
        )
        sources = {language: _source(language) for language in LANGUAGES}
        self._templates = {
            language: environment.from_string(text) for language, text in sources.items()
        }
        joined = "\x00".join(sources[language] for language in LANGUAGES)
        self.version = hashlib.sha256(joined.encode()).hexdigest()[:16]

    def build(
        self,
        messages: Sequence[Message],
        passages: Sequence[Hit],
        sampling: Sampling,
        most_tokens: int | None = None,
    ) -> GenerationRequest:
        """Return the finished prompt with the passages that fitted, in citation order.

        ``most_tokens`` bounds it where that is tighter than the window.
        """
        question, history, house_rules = _split(messages)
        language = language_of(question)
        output_tokens = sampling.max_tokens or self._settings.max_output_tokens
        budget = self.room(sampling)
        if most_tokens is not None:
            budget = min(budget, most_tokens)
        if len(question) > budget * _MAX_CHARACTERS_PER_TOKEN:
            raise _too_long(len(question) // _MAX_CHARACTERS_PER_TOKEN, budget)
        kept_history = self._history(history)
        kept = list(passages[: self._settings.max_passages])
        while True:
            system = self._system(language, question, kept, house_rules)
            prompt = (Message("system", system), *kept_history, Message("user", question))
            tokens = sum(self._cost(message.content) for message in prompt)
            if tokens <= budget:
                break
            if kept_history:
                kept_history = kept_history[1:]
            elif kept:
                kept.pop()
            else:
                raise _too_long(tokens, budget)
        return GenerationRequest(
            question=question,
            language=language,
            messages=prompt,
            passages=tuple(kept),
            sampling=sampling,
            max_output_tokens=output_tokens,
            prompt_tokens=tokens,
        )

    def room(self, sampling: Sampling) -> int:
        """Most tokens of a prompt; ``InvalidRequest`` when the output leaves none."""
        output_tokens = sampling.max_tokens or self._settings.max_output_tokens
        window = self._settings.window_tokens
        budget = min(int(window * self._settings.input_share), window - output_tokens)
        if budget <= 0:
            raise InvalidRequest(
                f"max_tokens {output_tokens} leaves no room for a question in the window of "
                f"{window} tokens.",
                param="max_tokens",
            )
        return budget

    def _history(self, history: Sequence[Message]) -> tuple[Message, ...]:
        kept: list[Message] = []
        left = self._settings.history_tokens
        for message in reversed(history):
            left -= self._cost(message.content)
            if left < 0:
                break
            kept.append(message)
        return tuple(reversed(kept))

    def _cost(self, text: str) -> int:
        return self._counter.count(text) + _MESSAGE_OVERHEAD_TOKENS

    def _system(self, language: str, question: str, hits: Sequence[Hit], house_rules: str) -> str:
        passages = [
            Passage(number, _label(hit), neutralised(_body(hit)))
            for number, hit in enumerate(hits, 1)
        ]
        return self._templates[language].render(
            fence=self._fence(question, passages), passages=passages, house_rules=house_rules
        )

    def _fence(self, question: str, passages: Sequence[Passage]) -> str:
        """A word no passage contains; the same for the same input, so that prompts are stable."""
        content = "\x00".join([question, *(passage.text for passage in passages)])
        salt = 0
        while True:
            seed = f"{self._secret}\x00{salt}\x00{content}".encode("utf-8", "surrogatepass")
            fence = "=====" + hashlib.sha256(seed).hexdigest()[:12]
            if fence not in content:
                return fence
            salt += 1


def _too_long(tokens: int, budget: int) -> ContextTooLong:
    return ContextTooLong(
        f"the question is too long: it takes at least {tokens} tokens, and {budget} fit; shorten "
        "it, raise context.window_tokens, or let an engine answer, which reads long texts in "
        "parts.",
        param="messages",
    )


def neutralised(text: str) -> str:
    """A passage's text with role markers broken; nothing else changes."""
    text = _ROLE_MARKERS.sub(lambda match: match.group(0)[0] + "\u200a" + match.group(0)[1:], text)
    return _ROLE_LINES.sub("\\1\\2\u200a\\3", text)


def _source(language: str) -> str:
    folder = resources.files("forebay.context") / "templates" / language
    return (folder / "system.j2").read_text(encoding="utf-8")


def _split(messages: Sequence[Message]) -> tuple[str, list[Message], str]:
    """The question, the turns before it, and what system messages add."""
    if not messages or messages[-1].role != "user":
        raise InvalidRequest("the last message must be the user's.", param="messages")
    rules = [message.content for message in messages if message.role == "system"]
    history = [message for message in messages[:-1] if message.role in ("user", "assistant")]
    return messages[-1].content, history, "\n".join(rules).strip()


def _label(hit: Hit) -> str:
    chunk = hit.chunk
    parts = [chunk.title, *chunk.heading_path]
    label = " > ".join(dict.fromkeys(part for part in parts if part))
    label = neutralised(" ".join(label.split()))[:200]
    return f"{label}, p. {chunk.page}" if chunk.page else label


def _body(hit: Hit) -> str:
    return f"{hit.chunk.context}\n{hit.chunk.text}" if hit.chunk.context else hit.chunk.text
