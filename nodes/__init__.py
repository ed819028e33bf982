"""One piece of work inside one step: takes state and context, returns a state update, emits events. Starts no run."""
