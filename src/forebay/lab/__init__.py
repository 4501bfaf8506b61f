"""Workloads, benchmarks, simulation, planning and evaluation of the server."""
