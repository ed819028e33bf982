"""Runtimes in processes of their own, which tests kill, stop, or run as somebody else."""
