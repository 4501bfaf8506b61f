"""The reader of questions, and the fake, against the one suite."""

from __future__ import annotations

import pytest

from forebay.kernel.stages import QueryReader
from forebay.query import KindClassifier, QuerySettings, RuleReader
from forebay.testing.query import ScriptedReader
from forebay.testing.query_suite import QueryReaderConformance


class TestScriptedReader(QueryReaderConformance):
    @pytest.fixture
    def reader(self) -> QueryReader:
        return ScriptedReader()


class TestRuleReader(QueryReaderConformance):
    @pytest.fixture
    def reader(self) -> QueryReader:
        return RuleReader(QuerySettings())


class TestRuleReaderWithClassifier(QueryReaderConformance):
    @pytest.fixture
    def reader(self) -> QueryReader:
        settings = QuerySettings(ambiguity="each")
        return RuleReader(settings, KindClassifier.shipped())
