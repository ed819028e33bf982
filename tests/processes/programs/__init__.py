"""Programs that the tests start: misbehaving commands, and runtimes that are killed."""
