"""Numbers as people read them."""

from __future__ import annotations


def seconds(value: float) -> str:
    """A duration: 850 µs, 12.3 ms, 4.56 s, 1,234 s."""
    # What three digits round up to the next unit is told in that.
    if value < 0.9995e-3:
        return f"{value * 1e6:.3g} µs"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"
