"""The `collider_events` dataset."""
