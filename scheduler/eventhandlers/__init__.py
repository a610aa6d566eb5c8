"""Changes of watched objects: first the cache, then subscribers, then the queue.

Upstream: pkg/scheduler/eventhandlers.go addAllEventHandlers
"""
