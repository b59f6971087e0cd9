"""Blocking steps of the SDK that are abandoned: threads, contexts and clean-up, without the SDK."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp._transport import SSLTransport

from pairbus.pairing.deadlines import DeadlineMonitor
from pairbus.pairing.effects import CallTimedOut
from pairbus.pairing.sdk import CallInterrupted, interrupt
from pairbus.pairing.sdk_opening import AbandonableSteps, make_opening_interruptible
from tests.waiting import wait_until

pytestmark = pytest.mark.rule("S2a")

caller: ContextVar[str] = ContextVar("caller")


class Blocking:
    """A function that blocks until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()
        self.ended = threading.Event()

    def __call__(self, *args: Any, **options: Any) -> str:
        self.entered.set()
        assert self.released.wait(30)
        self.ended.set()
        return "late"


class FakeHandler:
    """A handler of the SDK that is opened once."""

    def __init__(self, open_: Callable[..., Any]) -> None:
        self._session: object | None = None
        self._connection: Any = None
        self._open = open_
        self.opened = 0
        self.closed = threading.Event()

    def open(self, connection: Any = None) -> None:
        self.opened += 1
        self._open()
        self._session = object()

    def close(self) -> None:
        self.closed.set()


class FakeLink:
    """A link of the SDK, whose `call` opens its handler as a send does."""

    def __init__(self, open_: Callable[..., Any] = lambda: None, get_token: Any = None) -> None:
        self._config = SimpleNamespace(ssl_context=None)
        self._handler: Any = None
        self._created = FakeHandler(open_)
        self._auth = SimpleNamespace(get_token=get_token)
        self.sleeps = Blocking()
        self.sent = 0

    def _open(self) -> None:
        if self._handler is None:
            self._create_handler(self._auth)
        self._handler.open()

    def _create_handler(self, auth: Any) -> None:
        self._handler = self._created

    def _backoff(self, retried_times: int) -> None:
        self.sleeps()

    def send(self) -> None:
        self._open()
        self.sent += 1

    def get_token(self) -> Any:
        self._open()
        return self._auth.get_token()


@pytest.fixture
def monitor() -> Any:
    monitor = DeadlineMonitor()
    yield monitor
    monitor.stop()


def interruptible(**options: Any) -> FakeLink:
    link = FakeLink(**options)
    make_opening_interruptible(link)
    return link


def test_result_and_error_of_a_step_reach_the_caller() -> None:
    steps = AbandonableSteps()

    assert steps.run(lambda: "result") == "result"
    with pytest.raises(KeyError, match="missing"):
        steps.run(lambda: {}["missing"])


def test_step_runs_in_another_thread_and_in_the_context_of_the_caller() -> None:
    caller.set("the test")

    thread, context = AbandonableSteps().run(lambda: (threading.get_ident(), caller.get()))

    assert thread != threading.get_ident()
    assert context == "the test"


def test_interrupt_releases_the_caller_and_prevents_further_steps() -> None:
    steps, blocking, late = AbandonableSteps(), Blocking(), threading.Event()
    threading.Thread(target=lambda: (blocking.entered.wait(30), steps.interrupt())).start()

    with pytest.raises(CallInterrupted):
        steps.run(blocking, late.set)

    assert not blocking.ended.is_set()
    assert not late.is_set()
    with pytest.raises(CallInterrupted):
        steps.run(lambda: "another")
    blocking.released.set()
    assert late.wait(30)  # the abandoned step cleans up when it ends


def test_step_that_was_not_abandoned_does_not_clean_up() -> None:
    cleaned_up = threading.Event()

    AbandonableSteps().run(lambda: None, cleaned_up.set)
    wait_until(
        lambda: all(thread.name != "pairbus opening" for thread in threading.enumerate()),
        "the thread to end",
    )

    assert not cleaned_up.is_set()


@pytest.fixture
def default_interrupt() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt. A Spark session of another test may have replaced that."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("default_interrupt")
def test_keyboard_interrupt_reaches_the_caller_and_abandons_the_step() -> None:
    blocking, late = Blocking(), threading.Event()
    main = threading.get_ident()

    def press_ctrl_c() -> None:
        blocking.entered.wait(30)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press_ctrl_c).start()

    with pytest.raises(KeyboardInterrupt):
        AbandonableSteps().run(blocking, late.set)

    assert not late.is_set()
    blocking.released.set()
    assert late.wait(30)


def test_step_runs_in_the_thread_of_the_caller_if_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert AbandonableSteps().run(threading.get_ident) == threading.get_ident()


@pytest.mark.parametrize("step", ["open", "token", "backoff"])
def test_call_that_blocks_without_a_socket_times_out(monitor: DeadlineMonitor, step: str) -> None:
    blocking = Blocking()
    arguments = {"open": {"open_": blocking}, "token": {"get_token": blocking}}
    link = interruptible(**arguments.get(step, {}))
    calls: dict[str, Callable[[FakeLink], Any]] = {
        "open": FakeLink.send,
        "token": FakeLink.get_token,
        "backoff": lambda link: link._backoff(retried_times=1),
    }
    if step == "backoff":
        blocking = link.sleeps

    with pytest.raises(CallTimedOut):
        monitor.run(link, calls[step], 0.1)

    assert blocking.entered.is_set()
    assert not blocking.ended.is_set()
    blocking.released.set()
    assert blocking.ended.wait(30)


def test_abandoned_link_sends_nothing_and_is_closed_by_its_thread(monitor: DeadlineMonitor) -> None:
    blocking = Blocking()
    link = interruptible(open_=blocking)
    with pytest.raises(CallTimedOut):
        monitor.run(link, FakeLink.send, 0.1)

    link._handler.close()  # as the SDK does after an error
    assert not link._created.closed.is_set()
    blocking.released.set()

    assert link._created.closed.wait(30)
    assert link.sent == 0
    with pytest.raises(CallInterrupted):
        link.send()


def test_open_link_is_opened_once_and_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    link = interruptible()
    link.send()
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail("a thread"))

    link.send()

    assert (link._created.opened, link.sent) == (1, 2)


def test_interrupting_a_client_does_not_fail() -> None:
    interrupt(SimpleNamespace(_config=SimpleNamespace(ssl_context=None)))


def test_host_that_is_resolved_after_the_call_ended_gets_no_data() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = SSLTransport("127.0.0.1", port=server.getsockname()[1])
        link = FakeLink()
        link._handler = FakeHandler(lambda: None)
        link._handler._connection = SimpleNamespace(_transport=transport)

        interrupt(link)
        with pytest.raises(CallInterrupted):
            transport.connect()  # in the thread that was abandoned

        transport.sock.close()
        with server.accept()[0] as connection:
            assert connection.recv(1) == b""
