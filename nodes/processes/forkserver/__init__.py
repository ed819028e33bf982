"""What runs outside the runtime: the spawner, its guards, and the first instructions of every command.

Standard library only, single-threaded, no asyncio. Started with `python -S -E -I`, so that nothing installed beside it
can change what it does. It may import `nodes.processes.forkserver` and nothing else of this project.
"""
