"""A real engine for `truth.py`: llama.cpp's own OpenAI-compatible server in a process of its own.

One JSON line on standard output says where it listens; it ends with its standard input.
What would make one request depend on an earlier one is off: no prompt is kept in a slot
(`cache_prompt`), none in host memory (`cache_ram_mib`), and no slot is chosen by likeness.

`--keep-prompts` lets a slot go on from the prompt before, for whoever asks thrice about one text.

Run: python benchmarks/simulator/llama_server.py MODEL.gguf [--slots 4] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import sys

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slot-context", type=int, default=2048)
    parser.add_argument("--keep-prompts", action="store_true")
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = options.slots
    params.n_ctx = options.slot_context * options.slots
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.cache_prompt = options.keep_prompts
    params.cache_ram_mib = 0
    params.slot_prompt_similarity = 0.0
    params.n_threads_http = 64
    params.verbosity = -1
    server = xllamacpp.Server(params)
    settings = {
        "n_batch": params.n_batch,
        "n_ubatch": params.n_ubatch,
        "threads": options.threads,
        "slots": options.slots,
    }
    print(json.dumps({"url": server.listening_address, **settings}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
