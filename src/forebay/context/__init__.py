"""From hits to a prompt: what fits the token budget, in which order, quoted safely."""
