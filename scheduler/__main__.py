"""`python -m scheduler` is the `kubestow` command."""

import sys

from scheduler.cli import main

sys.exit(main())
