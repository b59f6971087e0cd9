"""Types of the fixtures that start servers and connect clients."""

from collections.abc import Callable

from examples.engine.frame_log import FrameLog
from examples.engine.memory_server import MemoryServer
from pairbus.amqp.client import Client
from tests.interop.peers import PeerClient, PeerServer

Connect = Callable[..., PeerClient]
OpenClient = Callable[..., Client]
StartPeer = Callable[..., PeerServer]
StartServer = Callable[..., MemoryServer]
Watch = Callable[[MemoryServer], FrameLog]
