"""SchedulerProfile objects, and profiles that change while the scheduler runs."""
