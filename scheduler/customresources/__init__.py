"""Objects of our own kinds: SchedulerProfiles and WhatIfs, which kopf watches (ADR 0006)."""
