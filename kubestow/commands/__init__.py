"""Commands for operators: the state of a running scheduler, its queue, and a report for developers."""
