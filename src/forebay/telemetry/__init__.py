"""Sinks for metrics, traces and logs; the only package that knows their libraries."""
