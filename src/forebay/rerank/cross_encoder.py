"""Cross-encoders from a folder: an ONNX model that reads query and text together.

Inputs are ``input_ids`` and any of ``attention_mask`` and ``token_type_ids``. One output per pair
is a logit; of two, as of a classifier, the second is for relevant. Tokenising holds the interpreter
lock, so texts are cut by characters first; the model itself runs without it.
"""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    Unavailable,
)
from forebay.rerank.settings import CrossEncoderSettings

_MODEL_FILES = (
    "model.onnx",
    "onnx/model.onnx",
    "model_quantized.onnx",
    "onnx/model_quantized.onnx",
)
_KNOWN_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_CHARACTERS_PER_TOKEN = 8
_QUERY_SHARE = 0.5
"""A query may take half of what the model reads, so that something of the text is left."""
_ERRORS_ONLY = 3
_FAR = 60.0


class CrossEncoder:
    """A loaded model; ``logits`` blocks and may be called from several threads at once."""

    def __init__(self, settings: CrossEncoderSettings, param: str = "rerank.dear.onnx") -> None:
        folder = Path(settings.path)
        self._settings = settings
        self._tokenizer, self._pad = _open_tokenizer(folder, settings.max_tokens, param)
        runtime: Any = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = _model_file(folder, settings.model_file, param)
        try:
            self._session = runtime.InferenceSession(
                str(model), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # ONNX Runtime derives its errors from Exception, one class per status code.
            raise ConfigError(f"the model {model.name} cannot be loaded", param=param) from error
        self._inputs = {tensor.name: tensor.type for tensor in self._session.get_inputs()}
        if "input_ids" not in self._inputs or set(self._inputs) - _KNOWN_INPUTS:
            raise ConfigError(
                f"the model {model.name} is no cross-encoder (inputs {sorted(self._inputs)})",
                param=param,
            )

    def logits(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return one logit of relevance per text."""
        most = self._settings.max_tokens * _CHARACTERS_PER_TOKEN
        asked = _clean(query[: int(most * _QUERY_SHARE)])
        # One by one: a batch would take threads of the tokenizer's own, beside this pool.
        pairs = [self._tokenizer.encode(asked, _clean(text[:most])) for text in texts]
        longest = max(len(pair.ids) for pair in pairs)
        shape = (len(pairs), longest)
        values = {name: np.zeros(shape, np.int64) for name in _KNOWN_INPUTS}
        values["input_ids"][:] = self._pad
        for row, pair in enumerate(pairs):
            count = len(pair.ids)
            values["input_ids"][row, :count] = pair.ids
            values["attention_mask"][row, :count] = 1
            values["token_type_ids"][row, :count] = pair.type_ids
        feed = {
            name: values[name].astype(np.int32) if kind == "tensor(int32)" else values[name]
            for name, kind in self._inputs.items()
        }
        try:
            found = np.asarray(self._session.run(None, feed)[0], np.float64)
        except Exception as error:
            # As above: no common base class to name.
            raise EngineError("the cross-encoder failed on this input") from error
        found = found.reshape(len(texts), -1)
        if found.shape[1] not in (1, 2) or not np.isfinite(found).all():
            raise EngineError("the cross-encoder gave something else than one score per text")
        return found[:, 0] if found.shape[1] == 1 else found[:, 1] - found[:, 0]


class CrossEncoderReranker:
    """``Reranker`` by a model in this process; ``close`` it to stop its threads."""

    def __init__(self, model: CrossEncoder, settings: CrossEncoderSettings) -> None:
        self._model = model
        self._settings = settings
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="cross-encoder")
        self._runs = 0
        self._closed = False

    async def rerank(
        self, ctx: RequestContext, query: str, texts: Sequence[str]
    ) -> Sequence[float]:
        """Return one relevance in 0..1 per text, in the order given.

        ``Overloaded`` when too many runs wait already, ``DeadlineExceeded`` when time runs out;
        what has not begun by then is dropped.
        """
        if self._closed:
            raise Unavailable("the reranker is shutting down")
        size = self._settings.batch_size
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        most = self._settings.max_waiting + self._settings.workers
        if batches and self._runs and self._runs + len(batches) > most:
            raise Overloaded("too much is waiting for the cross-encoder")
        loop = asyncio.get_running_loop()
        runs = [loop.run_in_executor(self._pool, self._model.logits, query, b) for b in batches]
        self._runs += len(runs)
        for run in runs:
            run.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(min(self._settings.timeout_s, ctx.deadline.remaining())):
                logits = [float(logit) for run in runs for logit in await run]
        except TimeoutError as error:
            raise DeadlineExceeded("the cross-encoder did not finish in time") from error
        finally:
            for run in runs:
                if not run.cancel() and not run.cancelled():
                    run.exception()  # seen: the first failure is the one that is raised
        return [1 / (1 + math.exp(-max(-_FAR, min(_FAR, logit)))) for logit in logits]

    async def close(self) -> None:
        """Drop what waits and stop the threads, after at most one run each."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    def _ended(self, _run: asyncio.Future[NDArray[np.float64]]) -> None:
        self._runs -= 1


def _open_tokenizer(folder: Path, max_tokens: int, param: str) -> tuple[Any, int]:
    """The tokenizer, set to cut pairs, and what pads them."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(
            f"{folder} {'has no tokenizer.json' if folder.is_dir() else 'is no folder'}: point "
            f"{param}.path at the folder of an ONNX cross-encoder.",
            param=f"{param}.path",
        )
    library: Any = importlib.import_module("tokenizers")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises bare Exception for every unreadable file.
        raise ConfigError(f"the tokenizer cannot be read: {path.name}", param=param) from error
    tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    padding = tokenizer.padding
    tokenizer.no_padding()
    return tokenizer, int(padding["pad_id"]) if padding else 0


def _model_file(folder: Path, wanted: str, param: str) -> Path:
    for name in (wanted,) if wanted else _MODEL_FILES:
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(
        f"{folder.name} has no {wanted or 'model.onnx'}; set {param}.model_file",
        param=f"{param}.model_file",
    )


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
