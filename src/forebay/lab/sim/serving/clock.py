"""The engine's time beside real time: the same, or faster, or slower for a while."""

from __future__ import annotations


class EngineTime:
    """Piecewise linear: ``speed`` engine seconds pass in one real second."""

    __slots__ = ("_engine", "_real", "_speed")

    def __init__(self, real: float, speed: float) -> None:
        self._real = real
        self._engine = 0.0
        self._speed = speed

    def at(self, real: float) -> float:
        """Engine time at a real time that is not before the last change of speed."""
        return self._engine + (real - self._real) * self._speed

    def real(self, engine: float) -> float:
        """Real time of an engine time, at the present speed."""
        return self._real + (engine - self._engine) / self._speed

    def change(self, real: float, speed: float) -> None:
        """Go on at another speed from ``real`` on."""
        self._engine = self.at(real)
        self._real = real
        self._speed = speed
