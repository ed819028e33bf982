"""The commands: each translates its arguments into one of the service's verbs, and the answer into what is shown."""
