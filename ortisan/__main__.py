"""`python -m ortisan` is the command line tool."""

from __future__ import annotations

import sys

from ortisan.cli import main

sys.exit(main())
