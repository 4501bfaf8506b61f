"""The ``[server]`` section and ``[[tenants]]``: where to listen, how much to take, who may ask."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from forebay.kernel.context import Priority


class DeadlineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long each kind of request may take when the client names no deadline."""

    answer_ms: Annotated[int, msgspec.Meta(ge=1, description="Chat completions, MCP `ask`.")] = (
        120_000
    )
    search_ms: Annotated[
        int, msgspec.Meta(ge=1, description="Search, rerank, embeddings, lists, single documents.")
    ] = 30_000
    change_ms: Annotated[
        int, msgspec.Meta(ge=1, description="Uploads and removals, waiting for vectors included.")
    ] = 300_000
    max_ms: Annotated[
        int, msgspec.Meta(ge=1, description="The longest that x-forebay-deadline-ms can ask for.")
    ] = 600_000


class ConnectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one TCP connection may do, and how many there may be."""

    max_connections: Annotated[
        int, msgspec.Meta(ge=1, description="Open connections; further ones get 503 and close.")
    ] = 10_000
    backlog: Annotated[
        int, msgspec.Meta(ge=1, description="Connections the kernel queues before accept.")
    ] = 2048
    keep_alive_s: Annotated[
        int, msgspec.Meta(ge=1, description="An idle connection is closed after this long.")
    ] = 10
    header_timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="A request's headers must be whole within this.")
    ] = 10.0
    body_timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="A request's body must be whole within this.")
    ] = 60.0
    linger_s: Annotated[
        float,
        msgspec.Meta(ge=0, description="How long the rest of a refused body is still taken in."),
    ] = 5.0
    write_timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="A client that reads nothing this long is dropped.")
    ] = 30.0
    max_header_bytes: Annotated[
        int, msgspec.Meta(ge=1024, description="Request line and headers together.")
    ] = 65_536
    max_headers: Annotated[int, msgspec.Meta(ge=8, description="Header lines of a request.")] = 100


class CorsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which web pages may call from a browser; none by default."""

    origins: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Allowed origins such as https://app.example; `*` allows any."),
    ] = ()
    max_age_s: Annotated[
        int, msgspec.Meta(ge=0, description="How long a browser may remember a preflight.")
    ] = 600


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP server."""

    host: Annotated[
        str, msgspec.Meta(description="Address to bind; beyond loopback needs [[tenants]] keys.")
    ] = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535, description="TCP port; 0: any free.")] = 8400
    default_kb: Annotated[
        str,
        msgspec.Meta(
            description="Knowledge base for model names that are not forebay/…; empty: the "
            "tenant's first, else the first of [knowledge], or the only one."
        ),
    ] = ""
    max_body_bytes: Annotated[
        int, msgspec.Meta(ge=1024, description="Larger request bodies are refused with 413.")
    ] = 4 * 1024 * 1024
    max_upload_bytes: Annotated[
        int, msgspec.Meta(ge=1024, description="Larger uploaded documents are refused with 413.")
    ] = 4 * 1024 * 1024
    max_in_flight: Annotated[
        int, msgspec.Meta(ge=1, description="Requests at once; further ones get 503.")
    ] = 1024
    drain_s: Annotated[
        float,
        msgspec.Meta(ge=0, description="How long running requests may finish after SIGTERM."),
    ] = 30.0
    trusted_proxies: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Networks (CIDR) whose x-forwarded-for counts."),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="Further Host names accepted without keys; loopback names always are."
        ),
    ] = ()
    deadlines: DeadlineSettings = DeadlineSettings()
    connections: ConnectionSettings = ConnectionSettings()
    cors: CorsSettings = CorsSettings()


class KeySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One API key of a tenant; only its hash is kept."""

    hash: Annotated[
        str,
        msgspec.Meta(
            pattern="^sha256:[0-9a-f]{64}$",
            description="sha256:<hex> of the key, as `forebay key new` prints it.",
        ),
    ]
    name: Annotated[str, msgspec.Meta(description="What logs call the key.")] = ""
    user: Annotated[
        str | None, msgspec.Meta(description="The user who holds it; unset: the tenant as such.")
    ] = None
    groups: Annotated[
        tuple[str, ...] | None,
        msgspec.Meta(description="Groups it may read for; unset: all of the tenant's."),
    ] = None
    admin: Annotated[
        bool, msgspec.Meta(description="May change documents and read /metrics from afar.")
    ] = False
    operator: Annotated[
        bool, msgspec.Meta(description="May change the quotas of the whole service at run time.")
    ] = False
    act_for_users: Annotated[
        bool, msgspec.Meta(description="May name x-forebay-user and any group of the tenant.")
    ] = False
    priority: Annotated[
        Priority | None,
        msgspec.Meta(
            description="What it is granted, up to the plan's ceiling; unset: nothing, so normal."
        ),
    ] = None
    business_line: Annotated[
        str, msgspec.Meta(description="Business line its use is booked on; empty: none.")
    ] = ""


class UserSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One user of a tenant."""

    name: Annotated[
        str,
        msgspec.Meta(
            pattern="^[!-~]{1,256}$", description="As a key or x-forebay-user names the user."
        ),
    ]
    priority: Annotated[
        Priority,
        msgspec.Meta(
            description="What the user is granted, up to the plan's ceiling; the highest wins."
        ),
    ]


class PlanSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tenant has bought."""

    name: Annotated[str, msgspec.Meta(description="What the plan is called.")] = "default"
    priority_ceiling: Annotated[
        Priority, msgspec.Meta(description="No request of the tenant goes above it.")
    ] = "high"
    tokens_per_minute: (
        Annotated[int, msgspec.Meta(ge=1, description="Token quota; unset: none.")] | None
    ) = None
    burst_tokens: (
        Annotated[
            int,
            msgspec.Meta(ge=1, description="Tokens that may be used at once; unset: a minute's."),
        ]
        | None
    ) = None
    weight: Annotated[
        float,
        msgspec.Meta(gt=0, description="Its share where tenants wait for one another."),
    ] = 1.0
    max_in_flight: (
        Annotated[int, msgspec.Meta(ge=1, description="Requests at once; unset: the server's.")]
        | None
    ) = None


class TenantSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tenant: its keys, what it may read, what it has bought."""

    name: Annotated[
        str,
        msgspec.Meta(
            pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Name in logs and figures."
        ),
    ]
    keys: Annotated[
        tuple[KeySettings, ...], msgspec.Meta(description="Its API keys, as hashes.")
    ] = ()
    knowledge: Annotated[
        tuple[str, ...] | Literal["*"],
        msgspec.Meta(description="Knowledge bases it may use; `*`: every one."),
    ] = ()
    default_kb: Annotated[
        str, msgspec.Meta(description="For model names that are not forebay/…; empty: the first.")
    ] = ""
    groups: Annotated[tuple[str, ...], msgspec.Meta(description="Groups of its users.")] = ()
    users: Annotated[
        tuple[UserSettings, ...], msgspec.Meta(description="Users with a priority of their own.")
    ] = ()
    plan: PlanSettings = PlanSettings()
    business_lines: Annotated[
        tuple[str, ...], msgspec.Meta(description="Business lines it books its use on.")
    ] = ()
