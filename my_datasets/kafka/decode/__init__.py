"""Decodes messages into columns: payloads, values, and the quarantine of undecodable messages."""
