"""``forebay simulate serve``: simulated replicas behind an OpenAI-compatible server."""
