"""Commands that describe, verify, compare, measure and export versions."""
