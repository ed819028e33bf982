"""Commands through real runs: how they end, what is left, what their output may cost, and what never gets out."""
