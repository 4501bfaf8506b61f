"""The least a JSON answer costs on this server: a bare application on the project's own uvicorn
set-up. Run: python benchmarks/caching/bare.py PORT
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

from forebay.gateway.protocol import bounded_protocol
from forebay.gateway.settings import ConnectionSettings
from forebay.wire.encoding import encode_json


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Take the body in, answer a little JSON."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    body = encode_json({"status": "ok"})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serve until ended, as gateway/server.py does."""
    limits = ConnectionSettings()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http=bounded_protocol(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=limits.backlog,
        timeout_keep_alive=limits.keep_alive_s,
    )


if __name__ == "__main__":
    main()
