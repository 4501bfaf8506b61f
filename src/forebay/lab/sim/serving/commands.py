"""Faults by HTTP: which replica a command is for, and what is in force where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.serving.faults import Command, Refuse, read_fault
from forebay.lab.sim.serving.replica import Replica

_NUMBER = re.compile(r"[0-9]{1,9}")


class Ports:
    """Which replica listens where; the shared port is nobody's own."""

    def __init__(self, own: Sequence[int], shared: int | None) -> None:
        self.own = tuple(own)
        self.shared = shared
        self._index = {port: number for number, port in enumerate(own)}

    def index(self, port: int) -> int | None:
        """The replica behind a port; None: the shared one."""
        return self._index.get(port)


class FaultCommands:
    """Puts and clears faults of replicas."""

    def __init__(self, replicas: Sequence[Replica], ports: Ports) -> None:
        self._replicas = replicas
        self._ports = ports

    def shown(self) -> dict[str, Any]:
        """Every replica with its faults, as JSON values."""
        return {
            "replicas": [
                {
                    "replica": number,
                    "port": port,
                    "faults": [
                        {**msgspec.to_builtins(fault), "left_s": left_s}
                        for fault, left_s in replica.faults_in_force()
                    ],
                }
                for number, (port, replica) in enumerate(
                    zip(self._ports.own, self._replicas, strict=True)
                )
            ]
        }

    def put(self, values: dict[str, Any], port: int | None) -> None:
        """Put the fault that ``values`` describe; ``ConfigError`` says what is wrong with it."""
        self.start(read_fault(values), port)

    def start(self, command: Command, port: int | None) -> None:
        """Put a fault on the replica it names, else on the one behind ``port``, else on all."""
        chosen = self._chosen(command.replica, port)
        fault = command.fault
        if isinstance(fault, Refuse) and fault.for_s is None and self._last_way_in(chosen):
            raise ConfigError(
                "fault refuse: give for_s, else no port is left on which the fault could be "
                "cleared (a shared_port stays open).",
                param="for_s",
            )
        for replica in chosen:
            replica.put_fault(fault)

    def clear(self, query: Mapping[str, str], port: int | None) -> None:
        """Clear what ``kind`` and ``replica`` name, everything of the port's replica without."""
        unknown = sorted(query.keys() - {"kind", "replica"})
        if unknown:
            raise ConfigError(f"there is no {unknown[0]} here; give kind, replica, both or none.")
        number = query.get("replica")
        if number is not None and not _NUMBER.fullmatch(number):
            raise ConfigError(f"replica must be a number, not {number[:20]}.", param="replica")
        for replica in self._chosen(None if number is None else int(number), port):
            replica.clear_faults(query.get("kind"))

    def _chosen(self, number: int | None, port: int | None) -> Sequence[Replica]:
        if number is None and port is not None:
            number = self._ports.index(port)
        if number is None:
            return self._replicas
        if number >= len(self._replicas):
            raise ConfigError(
                f"there is no replica {number}; there are {len(self._replicas)}, from 0 on.",
                param="replica",
            )
        return [self._replicas[number]]

    def _last_way_in(self, chosen: Sequence[Replica]) -> bool:
        if self._ports.shared is not None:
            return False
        return all(item in chosen or item.faults.refusing for item in self._replicas)
