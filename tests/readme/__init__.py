"""README.md is part of the interface: what it says is run, parsed or looked up here."""
