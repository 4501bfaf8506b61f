"""The load bench: a black-box client of any OpenAI-compatible target, its schedule, its ramp."""
