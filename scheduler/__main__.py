"""`python -m scheduler` is the `kubestow` command."""

import sys

from scheduler.cli.main import main

sys.exit(main())
