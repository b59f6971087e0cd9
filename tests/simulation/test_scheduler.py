"""The simulated world by itself: time, threads, processes and the network. Needs nothing of
pairbus, and no replaced standard library."""

from tests.simulation.network import Connection, End, Network
from tests.simulation.scheduler import Machine, Process, Scheduler


class Recorder:
    """One end of a connection that records what arrives."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: str | None = None

    def on_bytes(self, data: bytes) -> None:
        self.data += data

    def on_lost(self, reason: str) -> None:
        self.lost = reason


def connect(
    scheduler: Scheduler, network: Network, timeout_s: float = 10
) -> tuple[Connection, End, Recorder, Recorder]:
    server_end, client_end = Recorder(), Recorder()
    server = Process(scheduler, "server", Machine("server"))
    client = Process(scheduler, "client", Machine("client"))
    network.listen("server", server, lambda connection: server_end)
    opened: list[tuple[Connection, End]] = []
    client.spawn(lambda: opened.append(network.connect(client, "server", timeout_s)))
    scheduler.run(lambda: bool(opened), max_steps=1000)
    connection, end = opened[0]
    end.user = client_end
    return connection, end, client_end, server_end


def test_time_jumps_to_the_next_event() -> None:
    scheduler = Scheduler(1)
    times = []
    for delay in (30.0, 5.0, 3600.0):
        scheduler.call_later(delay, lambda: times.append(scheduler.now))
    scheduler.run(max_steps=10)
    assert times == [5.0, 30.0, 3600.0]


def test_events_at_one_time_happen_in_an_order_that_the_seed_decides() -> None:
    def order(seed: int) -> list[int]:
        scheduler, seen = Scheduler(seed), []
        for number in range(8):
            scheduler.call_later(1.0, lambda number=number: seen.append(number))  # type: ignore[misc]
        scheduler.run(max_steps=100)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 10


def test_thread_that_waits_continues_at_its_deadline_or_when_it_is_woken() -> None:
    scheduler = Scheduler(1)
    process = Process(scheduler, "p", Machine("m"))
    log: list[tuple[str, float, bool]] = []

    def wait(name: str, seconds: float) -> None:
        woken = scheduler.current_task().wait(seconds)
        log.append((name, scheduler.now, woken))

    process.spawn(lambda: wait("sleeper", 7.0))
    woken = process.spawn(lambda: wait("woken", 50.0))
    scheduler.call_later(3.0, woken.wake)
    scheduler.run(max_steps=100)
    assert [(name, round(when, 6), woken) for name, when, woken in log] == [
        ("woken", 3.0, True),
        ("sleeper", 7.0, False),
    ]


def test_clock_of_a_machine_may_be_fast() -> None:
    scheduler = Scheduler(1)
    process = Process(scheduler, "p", Machine("m", rate=2.0))
    process.spawn(lambda: scheduler.current_task().wait(10.0))
    scheduler.run(max_steps=100)
    assert round(scheduler.now, 6) == 5.0


def test_killed_process_runs_nothing_but_its_finally_blocks() -> None:
    scheduler = Scheduler(1)
    process = Process(scheduler, "p", Machine("m"))
    log = []

    def work() -> None:
        try:
            scheduler.current_task().wait(10.0)
            log.append("after the wait")
        finally:
            log.append("finally")
            scheduler.current_task().wait(10.0)
            log.append("waited in a dead process")

    process.spawn(work)
    scheduler.call_later(5.0, process.kill)
    scheduler.run(max_steps=100)
    assert log == ["finally"]
    assert round(scheduler.now, 6) in (5.0, 10.0)


def test_frozen_process_continues_when_it_thaws() -> None:
    scheduler = Scheduler(1)
    process = Process(scheduler, "p", Machine("m"))
    log: list[float] = []

    def work() -> None:
        scheduler.current_task().wait(1.0)
        log.append(scheduler.now)

    process.spawn(work)
    scheduler.run(limit_s=0.5, max_steps=100)
    process.freeze()
    scheduler.call_later(59.5, process.thaw)
    scheduler.run(max_steps=100)
    assert [round(when, 6) for when in log] == [60.0]


def test_bytes_arrive_in_order_and_later_than_they_were_sent() -> None:
    scheduler = Scheduler(3)
    network = Network(scheduler)
    network.split_share = 0.5
    connection, end, _, server = connect(scheduler, network)
    sent = b"".join(bytes([number]) * 10 for number in range(50))
    for start in range(0, len(sent), 10):
        connection.send(end, sent[start : start + 10])
    assert server.data == b""
    scheduler.run(max_steps=1000)
    assert server.data == sent


def test_connections_overtake_each_other() -> None:
    winners = set()
    for seed in range(20):
        scheduler = Scheduler(seed)
        network = Network(scheduler)
        first = connect(scheduler, network)
        second = connect(scheduler, network)
        first[0].send(first[1], b"1")
        second[0].send(second[1], b"2")
        scheduler.run(
            lambda first=first, second=second: bool(first[3].data or second[3].data),  # type: ignore[misc]
            max_steps=1000,
        )
        winners.add("first" if first[3].data else "second")
    assert winners == {"first", "second"}


def test_cut_delivers_any_prefix_and_tells_both_ends() -> None:
    lengths = set()
    for seed in range(60):
        scheduler = Scheduler(seed)
        connection, end, client, server = connect(scheduler, Network(scheduler))
        connection.send(end, b"x" * 100)
        connection.cut()
        scheduler.run(max_steps=1000)
        assert server.lost is not None
        assert client.lost is not None
        lengths.add(len(server.data))
    assert 0 in lengths
    assert len(lengths) > 20


def test_silent_connection_delivers_nothing_and_tells_nobody() -> None:
    scheduler = Scheduler(1)
    connection, end, client, server = connect(scheduler, Network(scheduler))
    connection.silence(connection.server)
    connection.send(end, b"lost")
    connection.close(end)
    scheduler.run(max_steps=1000)
    assert (server.data, server.lost, client.lost) == (b"", None, None)


def test_partition_holds_bytes_back_until_it_heals() -> None:
    outcomes = set()
    for seed in range(20):
        scheduler = Scheduler(seed)
        network = Network(scheduler)
        connection, end, _, server = connect(scheduler, network)
        network.partition("client", "server", silent=True)
        connection.send(end, b"late")
        scheduler.run(limit_s=20, max_steps=1000)
        assert server.data == b""
        network.heal("client", "server")
        scheduler.run(max_steps=1000)
        outcomes.add((server.data, server.lost is None))
    assert (b"late", True) in outcomes
    assert (b"", False) in outcomes


def test_connecting_to_a_dead_host_is_refused_or_times_out() -> None:
    for silent, expected in ((False, ConnectionRefusedError), (True, TimeoutError)):
        scheduler = Scheduler(1)
        network = Network(scheduler)
        network.stop_listening("server", silent=silent)
        client = Process(scheduler, "client", Machine("client"))
        client.spawn(lambda network=network, client=client: network.connect(client, "server", 9.0))  # type: ignore[misc]
        scheduler.run(max_steps=100)
        assert [type(error) for _, error in scheduler.failures] == [expected]
        assert (scheduler.now >= 9.0) is silent


def test_trace_of_a_seed_is_always_the_same() -> None:
    def digest(seed: int) -> str:
        scheduler = Scheduler(seed)
        connection, end, *_ = connect(scheduler, Network(scheduler))
        connection.send(end, b"data")
        scheduler.run(max_steps=1000)
        return scheduler.digest()

    assert digest(7) == digest(7)
    assert digest(7) != digest(8)
