"""A network or its music -> numbers beside those of real music."""
