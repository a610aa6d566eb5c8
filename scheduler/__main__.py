"""`python -m scheduler` is the `kubestow` command without the commands for operators."""

import sys

from scheduler.cli.main import main

sys.exit(main())
