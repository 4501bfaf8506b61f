"""Every command as a process without a terminal: results, JSON, exit codes, one-sentence errors."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import (
    LEXICAL,
    Ran,
    Served,
    forebay,
    forebay_apart,
    served,
    start,
    until,
)

NO_MODEL = ("--set", "embedding.backend=none")


def write_notes(folder: Path) -> Path:
    notes = folder / "notes"
    notes.mkdir(parents=True)
    (notes / "pump.md").write_text("# Pump room\n\nThe spare pump runs at 1450 rpm.\n")
    (notes / "泵.md").write_text("# 泵房\n\n备用泵的钥匙在门卫室。\n", encoding="utf-8")
    (notes / "empty.md").write_text("")
    return notes


def fails(ran: Ran, status: int, *words: str) -> None:
    """One sentence on standard error that holds ``words``, nothing else, and the exit status."""
    assert ran.status == status, ran
    assert ran.out == ""
    lines = ran.err.strip().splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("forebay: ") and lines[0].endswith((".", "?")), ran.err
    for word in words:
        assert word in lines[0]


def prints_json_error(ran: Ran, status: int) -> str:
    assert ran.status == status, ran
    assert "Traceback" not in ran.err
    message: str = ran.json["error"]["message"]
    return message


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration and a store that holds ``notes``, nobody serving it."""
    folder = tmp_path_factory.mktemp("home")
    write_notes(folder)
    (folder / "forebay.toml").write_text('[store]\npath = "store"\n' + LEXICAL)
    ran = forebay("ingest", "notes", "--json", folder=folder)
    assert ran.status == 0, ran
    assert ran.json["summary"]["outcomes"] == {"indexed": 2, "skipped": 1}
    reasons = {event["document_id"]: event.get("reason", "") for event in ran.json["files"]}
    assert set(reasons) == {"notes/pump.md", "notes/泵.md", "notes/empty.md"}
    assert "empty" in reasons["notes/empty.md"]
    return folder


# --- results -------------------------------------------------------------------------------------


def test_version_and_help_need_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "forebay.toml").write_text("not toml")
    ran = forebay("--version", folder=tmp_path)
    assert (ran.status, ran.err) == (0, "") and ran.out.startswith("forebay 0.")
    ran = forebay("kb", "--help", folder=tmp_path)
    assert ran.status == 0
    for command in ("list", "show", "drop", "export", "import", "reembed"):
        assert command in ran.out


def test_ingest_again_finds_everything_unchanged(home: Path) -> None:
    ran = forebay("ingest", "notes", folder=home)
    assert ran.status == 0
    assert "\x1b" not in ran.out + ran.err
    assert ran.out.splitlines()[-1].startswith("notes: version 1, ")
    assert "2 unchanged" in ran.out
    assert "pump.md" not in ran.out


def test_search_prints_passages_for_people_and_for_programs(home: Path) -> None:
    ran = forebay("search", "备用泵的钥匙", folder=home)
    assert ran.status == 0 and "[1] notes/泵.md" in ran.out and "门卫室" in ran.out
    ran = forebay("search", "spare pump", "-n", "1", "--json", folder=home)
    assert (ran.status, ran.err) == (0, "")
    [hit] = ran.json["hits"]
    assert hit["document_id"] == "notes/pump.md" and "1450 rpm" in hit["text"]
    assert ran.json["rung"] == "bm25"


def test_ask_answers_with_its_sources(home: Path) -> None:
    ran = forebay("ask", "How fast does the spare pump run?", folder=home)
    assert ran.status == 0 and "1450" in ran.out and "[1] notes/pump.md" in ran.out
    ran = forebay("ask", "备用泵的钥匙在哪里?", "--json", folder=home)
    assert (ran.status, ran.err) == (0, "")
    assert "门卫室" in ran.json["answer"] and ran.json["refused"] is False
    assert [each["document_id"] for each in ran.json["citations"]] == ["notes/泵.md"]


def test_kb_list_and_show(home: Path) -> None:
    ran = forebay("kb", "list", "--json", folder=home)
    assert (ran.status, ran.err) == (0, "")
    assert [(kb["name"], kb["documents"]) for kb in ran.json] == [("notes", 2)]
    ran = forebay("kb", "list", folder=home)
    header, *rows = (line.split("\t") for line in ran.out.splitlines())
    assert ran.status == 0 and [row[0] for row in rows] == ["notes"]
    assert header == ["name", "version", "documents", "chunks", "embedded", "sentences"]
    ran = forebay("kb", "show", "notes", "--json", folder=home)
    assert (ran.status, ran.err) == (0, "")
    documents = {each["document_id"]: each["language"] for each in ran.json["documents"]}
    assert documents == {"notes/pump.md": "en", "notes/泵.md": "zh"}
    assert "_root" not in json.dumps(ran.json)
    ran = forebay("kb", "show", "notes", folder=home)
    assert ran.status == 0 and "notes/泵.md" in ran.out


def test_export_import_and_drop(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes.forebay"
    ran = forebay("kb", "export", "notes", file, "--json", folder=home)
    assert (ran.status, ran.err) == (0, "") and ran.json["bytes"] == file.stat().st_size
    ran = forebay("kb", "import", file, "--as", "copy", "--json", folder=home)
    assert (ran.status, ran.err) == (0, "")
    assert (ran.json["name"], ran.json["documents"]) == ("copy", 2)
    ran = forebay("search", "spare pump", "--kb", "copy", "--json", folder=home)
    assert ran.json["hits"][0]["document_id"] == "notes/pump.md"
    fails(forebay("kb", "import", file, folder=home), 1, "notes")
    fails(forebay("kb", "drop", "copy", folder=home), 2, "--yes")
    ran = forebay("kb", "drop", "copy", "--yes", "--json", folder=home)
    assert (ran.status, ran.err) == (0, "") and ran.json == {"dropped": "copy"}
    fails(forebay("kb", "show", "copy", folder=home), 1, "copy")
    assert not (home / "store" / "indexes" / "copy").exists()


def test_key_new_prints_a_key_and_its_hash_once(tmp_path: Path) -> None:
    from forebay.gateway.identity import hash_key

    ran = forebay("key", "new", "--json", folder=tmp_path)
    assert (ran.status, ran.err) == (0, "")
    assert ran.json["hash"] == hash_key(ran.json["key"])
    again = forebay("key", "new", folder=tmp_path)
    assert again.status == 0 and ran.json["key"] not in again.out
    assert "sha256:" in again.out and "cannot be shown again" in again.err


def test_config_says_what_is_in_force_and_from_where(home: Path) -> None:
    words = ("config", "--set", "store.poll_ms=50", "--json")
    ran = forebay(*words, folder=home, FOREBAY_SERVER__PORT="8499")
    assert (ran.status, ran.err) == (0, "")
    rows = {row["key"]: (row["value"], row["origin"]) for row in ran.json}
    assert rows["server.port"] == (8499, "environment")
    assert rows["store.poll_ms"] == (50, "command line")
    assert rows["embedding.backend"] == ("none", "forebay.toml")
    assert rows["server.host"] == ("127.0.0.1", "default")
    ran = forebay("config", folder=home)
    assert ran.status == 0 and "server.port\t8400\tdefault" in ran.out.splitlines()


def test_config_schema_is_a_json_schema(tmp_path: Path) -> None:
    ran = forebay("config", "--schema", folder=tmp_path)
    assert (ran.status, ran.err) == (0, "")
    settings = ran.json["$defs"]["Settings"]["properties"]
    assert {"server", "store", "knowledge", "embedding", "tenants"} <= settings.keys()


def test_config_masks_secrets(tmp_path: Path) -> None:
    ran = forebay("config", "--json", folder=tmp_path, FOREBAY_EMBEDDING__API_KEY="hush-hush")
    assert ran.status == 0 and "hush-hush" not in ran.out


def test_doctor_looks_at_machine_store_and_port(home: Path) -> None:
    ran = forebay("doctor", "--json", folder=home)
    assert (ran.status, ran.err) == (0, "")
    findings = {each["name"]: each for each in ran.json}
    assert {"python", "machine", "memory", "store", "port", "embedding model"} <= findings.keys()
    assert findings["embedding model"]["detail"] == "backend none"
    ran = forebay("doctor", folder=home)
    assert ran.status == 0 and "ok    python" in ran.out


# --- errors --------------------------------------------------------------------------------------


def test_an_unknown_setting_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "forebay.toml").write_text("[server]\nprot = 1\n")
    fails(forebay("config", folder=tmp_path), 2, "server.prot", "did you mean server.port?")
    ran = forebay("search", "x", "--json", folder=tmp_path)
    assert "server.port" in prints_json_error(ran, 2)


def test_a_broken_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "forebay.toml").write_text("[server]\nport = \n")
    fails(forebay("kb", "list", folder=tmp_path), 2, "forebay.toml", "line 2")


def test_a_wrong_value_names_key_and_origin(tmp_path: Path) -> None:
    ran = forebay("config", folder=tmp_path, FOREBAY_SERVER__PORT="many")
    fails(ran, 2, "server.port", "environment variable FOREBAY_SERVER__PORT")
    fails(forebay("config", "--set", "port", folder=tmp_path), 2, "section.key=value")
    fails(forebay("config", "--config", "none.toml", folder=tmp_path), 2, "none.toml")


def test_a_missing_path_is_wrong_use(home: Path) -> None:
    fails(forebay("ingest", "nowhere", folder=home), 2, "nowhere")
    fails(forebay("serve", "nowhere", folder=home), 2, "nowhere")
    fails(forebay("kb", "import", "nowhere", folder=home), 2, "nowhere")
    message = prints_json_error(forebay("ingest", "nowhere", "--json", folder=home), 2)
    assert "nowhere" in message


def test_an_unknown_knowledge_base_is_named_with_those_there_are(home: Path) -> None:
    fails(forebay("search", "x", "--kb", "other", folder=home), 1, "other", "notes")
    fails(forebay("ask", "x", "--kb", "other", folder=home), 1, "other", "notes")
    for words in (
        ("kb", "show", "other"),
        ("kb", "export", "other", "file"),
        ("kb", "drop", "other", "--yes"),
    ):
        fails(forebay(*words, folder=home), 1, "other")
    assert not (home / "file").exists()


def test_without_a_store_reading_says_how_to_begin(tmp_path: Path) -> None:
    for words in (("search", "x"), ("ask", "x"), ("kb", "list"), ("kb", "show", "x")):
        fails(forebay(*words, folder=tmp_path), 1, "no store", "forebay ingest PATH")
    assert not (tmp_path / "var").exists()


def test_an_empty_knowledge_base_says_how_to_fill_it(tmp_path: Path) -> None:
    (tmp_path / "forebay.toml").write_text('[store]\npath = "store"\n' + LEXICAL)
    (tmp_path / "notes").mkdir()
    assert forebay("ingest", "notes", folder=tmp_path).status == 0
    for words in (("search", "x"), ("ask", "What is x?")):
        ran = forebay(*words, folder=tmp_path)
        assert ran.status == 0 and "forebay ingest PATH --kb notes" in ran.err, ran
        assert forebay(*words, "--json", folder=tmp_path).status == 0


def test_a_wrong_flag_is_wrong_use(tmp_path: Path) -> None:
    many = ("serve", "--workers", "1000")
    for words in (("ingest", "--nope"), ("ingest",), ("serve", "--workers", "0"), many, ("nope",)):
        ran = forebay(*words, folder=tmp_path)
        assert ran.status == 2 and ran.out == "" and "Traceback" not in ran.err, ran


def test_an_empty_query_is_wrong_use(home: Path) -> None:
    fails(forebay("search", " ", folder=home), 2, "empty")
    fails(forebay("ask", " ", folder=home), 2)


def test_reembedding_without_an_embedder_says_so(home: Path) -> None:
    fails(forebay("kb", "reembed", "notes", folder=home), 1, "embedding.backend")


def test_a_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    write_notes(tmp_path)
    assert forebay("ingest", "notes", "--store", "store", *NO_MODEL, folder=tmp_path).status == 0
    [record] = (tmp_path / "store").glob("*.sqlite3")
    with sqlite3.connect(record) as connection:
        connection.execute("UPDATE meta SET value = value + 900 WHERE key = 'schema_version'")
    for words in (("kb", "list"), ("ingest", "notes", *NO_MODEL), ("search", "pump", *NO_MODEL)):
        fails(forebay(*words, "--store", "store", folder=tmp_path), 1, "newer")


def test_a_second_server_on_the_same_store_or_port_ends_with_one_sentence(
    server: Served, tmp_path: Path
) -> None:
    ran = server.command("serve", "--port", "0")
    assert ran.status == 1 and "Traceback" not in ran.err
    assert "another process" in ran.err.splitlines()[-1]
    words = ("serve", "--port", str(server.port), "--store", "own", *NO_MODEL)
    ran = forebay(*words, folder=tmp_path)
    assert ran.status == 2 and "Traceback" not in ran.err
    assert "server.port" in ran.err.splitlines()[-1]


# --- beside a server, beside another ingest, following a folder ----------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_ingest_beside_a_server_is_seen_by_it_at_once(server: Served) -> None:
    write_notes(server.folder / "beside")
    ran = server.command("ingest", server.folder / "beside" / "notes", "--json")
    assert ran.status == 0, ran
    assert ran.json["summary"]["outcomes"] == {"indexed": 2, "skipped": 1}
    assert server.ask.version("notes") == ran.json["summary"]["version"]
    assert server.ask.found("notes", "spare pump") == {"notes/pump.md"}
    assert server.ask.found("notes", "备用泵的钥匙") == {"notes/泵.md"}


def test_other_commands_beside_a_server(server: Served, tmp_path: Path) -> None:
    server.ask.put("shelf", "a.md", "# Anvil\n\nThe anvil weighs 90 kg.\n")
    file = tmp_path / "shelf.forebay"
    assert server.command("search", "anvil", "--kb", "shelf", "--json").json["hits"]
    assert server.command("kb", "export", "shelf", file).status == 0
    assert server.command("kb", "import", file, "--as", "shelf2").status == 0
    assert server.ask.found("shelf2", "anvil") == {"a.md"}
    assert server.command("kb", "drop", "shelf2", "--yes").status == 0
    body = {"kb": "shelf2", "query": "anvil"}
    until(lambda: server.ask("POST", "/v1/search", body).status == 404, within_s=3)
    fails(server.command("kb", "drop", "shelf2", "--yes"), 1, "shelf2")


def test_two_ingests_at_once_both_succeed(tmp_path: Path) -> None:
    texts = {name: tmp_path / name for name in ("left", "right")}
    for name, folder in texts.items():
        folder.mkdir()
        for number in range(30):
            (folder / f"{number}.md").write_text(f"# {name} {number}\n\nThe {name} text.\n")
    results: dict[str, Ran] = {}

    def ingest(name: str) -> None:
        words = ("ingest", name, "--kb", "both", "--store", "store", *NO_MODEL, "--json")
        results[name] = forebay_apart(*words, folder=tmp_path)

    threads = [threading.Thread(target=ingest, args=(name,)) for name in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, ran in results.items():
        assert ran.status == 0, (name, ran)
        assert ran.json["summary"]["outcomes"] == {"indexed": 30}
    ran = forebay("kb", "list", "--store", "store", "--json", folder=tmp_path)
    assert ran.json[0]["documents"] == 60


def test_watch_follows_a_folder(tmp_path: Path) -> None:
    notes = write_notes(tmp_path)
    log = tmp_path / "log"
    store = tmp_path / "store"
    process = start(
        "ingest", "notes", "--watch", "--store", store, *NO_MODEL, folder=tmp_path, log=log
    )
    try:

        def says(line: str) -> None:
            def reached() -> bool:
                assert process.poll() is None, log.read_text()
                return any(each.split() == line.split() for each in log.read_text().splitlines())

            until(reached)

        says("indexed notes/pump.md")
        until(lambda: "notes: version" in log.read_text())
        (notes / "new.md").write_text("# New\n\nA new valve.\n")
        says("indexed notes/new.md")
        (notes / "pump.md").write_text("# Pump room\n\nThe spare pump runs at 960 rpm.\n")
        says("replaced notes/pump.md")
        (notes / "new.md").unlink()
        says("removed notes/new.md")
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(20)
    assert status in (0, 130), log.read_text()
    assert "Traceback" not in log.read_text()
    shown: Any = forebay("kb", "show", "notes", "--store", store, "--json", folder=tmp_path).json
    assert {each["document_id"] for each in shown["documents"]} == {
        "notes/pump.md",
        "notes/泵.md",
    }
