"""Scopes on real processes."""
