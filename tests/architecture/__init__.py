"""Tests of structure: what the code may import, what the repository and the wheel hold, what the tests prove."""
