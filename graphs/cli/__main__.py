"""`python -m graphs.cli`: the command without its installed script."""

from __future__ import annotations

import sys

from graphs.cli.entry import main

sys.exit(main())
