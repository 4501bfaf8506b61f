"""``forebay simulate serve``: simulated replicas behind an OpenAI-compatible server."""

from forebay.lab.sim.serving.options import SimulatedServer
from forebay.lab.sim.serving.server import Addresses, serve_simulated

__all__ = ["Addresses", "SimulatedServer", "serve_simulated"]
