"""An evaluator whose figures are a formula of the settings: searches of it are deterministic."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.kernel.errors import ConfigError
from forebay.lab.tune.objectives import Observed
from forebay.lab.tune.questions import Place, Question, Target
from forebay.lab.tune.space import Choice, Parameter, Values, When, Whole

KIND, EF, NPROBE = "v.kind", "v.ef", "v.nprobe"
SPACE: tuple[Parameter, ...] = (
    Choice(KIND, ("exact", "hnsw", "ivfpq")),
    Whole(EF, 16, 256, log=True, when=When(KIND, "hnsw")),
    Whole(NPROBE, 2, 128, log=True, when=When(KIND, "ivfpq")),
)
QUESTIONS = tuple(
    Question(f"{number}", f"question {number}", (Target(f"d{number}"),)) for number in range(40)
)


class FormulaEvaluator:
    """Graphs are quick and big, compressed lists small and less right, exact is slow and right."""

    def __init__(self) -> None:
        self.seen: list[dict[str, object]] = []

    async def observe(self, values: Values, questions: Sequence[Question]) -> Observed:
        self.seen.append(dict(values))
        kind = str(values.get(KIND, "exact"))
        if kind == "hnsw":
            ef = int(values.get(EF, 64))
            rank, cost_s, memory_bytes = 1 + 200 // (ef * ef // 16), ef * 1e-5, 2_000_000
        elif kind == "ivfpq":
            nprobe = int(values.get(NPROBE, 8))
            if nprobe > 120:
                raise ConfigError("nprobe 中 is more than there are lists.")
            rank, cost_s, memory_bytes = 1 + 12 // nprobe, nprobe * 2e-5, 300_000
        else:
            rank, cost_s, memory_bytes = 1, 5e-3, 1_500_000
        places = [Place(f"other{at}", 0, 10) for at in range(rank - 1)]
        found = {
            each.id: [*places, Place(each.targets[0].document_id, 0, 10)] for each in questions
        }
        costs = [cost_s] * len(questions)
        return Observed(found, costs, costs, memory_bytes, chunks=10)
