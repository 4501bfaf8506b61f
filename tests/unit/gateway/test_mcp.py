"""The MCP tools, through the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from forebay.gateway.build import build_mcp
from forebay.gateway.identity import new_key
from forebay.gateway.mcp_stdio import Unanswered
from forebay.gateway.settings import KeySettings, TenantSettings
from tests.unit.gateway.fakes import World, serving

STDIO_SERVER = """
import asyncio
from forebay.gateway.build import build_mcp
from tests.unit.gateway.fakes import World
asyncio.run(build_mcp(World().parts).serve_stdio())
"""


async def test_tools_in_process() -> None:
    async with Client(build_mcp(World().parts).server) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {"search", "ask"}
        assert tools[0].input_schema["required"] == ["query"]
        await check_calls(client)


async def check_calls(client: Client) -> None:
    found = await client.call_tool("search", {"query": "leave", "top_k": 1})
    assert not found.is_error
    assert found.structured_content["hits"][0]["document_id"] == "leave.md"
    asked = await client.call_tool("ask", {"question": "How many days?", "kb": "handbook"})
    assert asked.structured_content["answer"].startswith("Employees have 25 days")
    assert asked.structured_content["citations"][0]["index"] == 1
    assert "[1] leave.md" in text_of(asked)
    none = await client.call_tool("search", {"query": "leave", "kb": "none"})
    assert none.is_error
    assert "the knowledge base 'none' does not exist or you have no access" in text_of(none)


def text_of(result: Any) -> str:
    [block] = result.content
    return str(block.text)


async def test_wrong_arguments_are_a_result_a_model_can_read() -> None:
    async with Client(build_mcp(World().parts).server) as client:
        for arguments in ({}, {"query": 3}, {"query": "x", "top_k": 0}, {"query": " "}):
            result = await client.call_tool("search", arguments)
            assert result.is_error, arguments


async def test_streamable_http() -> None:
    with serving(World()) as address:
        async with Client(f"{address}/mcp") as client:
            await check_calls(client)


async def test_http_obeys_the_same_identity_rules() -> None:
    key = new_key()
    tenant = TenantSettings(
        "acme", keys=(KeySettings(key.hash),), knowledge=("handbook",), groups=("hr",)
    )
    world = World(tenants=[tenant])
    with serving(world) as address:
        headers = {"authorization": f"Bearer {key.key}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
        ):
            await check_calls(client)
            secret = await client.call_tool("ask", {"question": "the plan?", "kb": "secret"})
            absent = await client.call_tool("ask", {"question": "the plan?", "kb": "absent"})
            assert secret.is_error
            assert text_of(secret).replace("secret", "absent") == text_of(absent)
        assert httpx2.post(f"{address}/mcp", json={}).status_code == 401


@pytest.mark.timeout(60)
async def test_stdio_answers_what_was_asked_before_its_input_ended(
    tmp_path: Path, repository: Path
) -> None:
    script = tmp_path / "server.py"
    script.write_text(STDIO_SERVER)
    client: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    client["clientInfo"] = {"name": "t", "version": "1"}
    ask = {"name": "ask", "arguments": {"question": "How many days?", "kb": "handbook"}}
    lines: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": ask},
        {"id": 3, "method": "tools/call", "params": ask},
    ]
    ran = subprocess.run(
        [sys.executable, str(script)],
        input="".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines),
        env={"PYTHONPATH": f"{repository / 'src'}:{repository}"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answers = {each["id"]: each for each in map(json.loads, ran.stdout.splitlines())}
    assert answers.keys() == {1, 2, 3}
    assert "25 days" in answers[3]["result"]["structuredContent"]["answer"]


async def test_a_cancelled_request_is_waited_for_no_longer() -> None:
    unanswered = Unanswered(wait_s=60)
    unanswered.asked(SimpleNamespace(id=7, method="tools/call"))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(unanswered.settled())
        await asyncio.sleep(0)
        assert not waiting.done()
        cancel = SimpleNamespace(method="notifications/cancelled", params={"requestId": 7})
        unanswered.asked(cancel)


@pytest.mark.timeout(60)
async def test_stdio(tmp_path: Path, repository: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(STDIO_SERVER)
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(script)],
        env={"PYTHONPATH": f"{repository / 'src'}:{repository}"},
    )
    async with Client(server) as client:
        await check_calls(client)
