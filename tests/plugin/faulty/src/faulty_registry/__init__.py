"""Entry points that cannot be used."""

NUMBER = 7
