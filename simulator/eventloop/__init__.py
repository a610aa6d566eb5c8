"""An event loop whose run repeats: its time is virtual, and connections within the process have no sockets."""

from simulator.eventloop.virtual_loop import SimulatedClock, VirtualLoop

__all__ = ["SimulatedClock", "VirtualLoop"]
