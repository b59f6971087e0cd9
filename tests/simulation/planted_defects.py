"""Defects that `mutants.py` plants in a copy of the code. Many of them were real once."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: a text of a source file, and what replaces it."""

    file: str
    text: str
    replacement: str


MUTANTS = {
    "settle before the destination accepts": Mutant(
        "spark/destination_sender.py",
        "            return self._sender.post(payload, message_format",
        "            self._recorder.delivered(self._path, messages)\n"
        "            self._recorder._settler.finish()\n"
        "            return self._sender.post(payload, message_format",
    ),
    "reply before the commit": Mutant(
        "emulator/runtime.py",
        "        self.meter.save()\n        self.store.commit()\n",
        "        for reply in self._replies:\n            reply()\n"
        "        for connection in self._unflushed:\n            connection.flush()\n"
        "        self._replies, self._unflushed = [], {}\n"
        "        self.meter.save()\n        self.store.commit()\n",
    ),
    "commit without a sync": Mutant(
        "emulator/storage/schema.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF"
    ),
    "pull a queue for the error of a caller": Mutant(
        "pairing/failures.py",
        "    return BacklogFailure.MESSAGE_REJECTED\n",
        "    return BacklogFailure.QUEUE_UNAVAILABLE\n",
    ),
    "take an expired lock for valid": Mutant(
        "spark/destination_sender.py",
        "        min_locked_until = self._min_locked_until()\n        if not self._late_sessions",
        "        min_locked_until = 0\n        if not self._late_sessions",
    ),
    "forget the hold in failback": Mutant(
        "pairing/health.py",
        "        if self.hold_until is not None and now < self.hold_until:\n"
        "            return Route.HOLD\n",
        "",
    ),
    "ignore sends in flight in failback": Mutant(
        "pairing/health.py", "if empty and idle else 0", "if empty else 0"
    ),
    "send to the primary while draining": Mutant(
        "pairing/health.py",
        "        if self.status in (PathStatus.HEALTHY, PathStatus.SUSPECT):\n"
        "            return Route.PRIMARY\n",
        "        if self.status is not PathStatus.FAILOVER:\n            return Route.PRIMARY\n",
    ),
    "let a message pass an older one of its session": Mutant(
        "syphon/session_order.py",
        "return not self._all_held and session not in self._held",
        "return True",
    ),
    "report a message as not sent that was transferred": Mutant(
        "pairing/outcomes.py",
        "return SendOutcome.UNKNOWN if position in self.transferred else SendOutcome.NOT_SENT",
        "return SendOutcome.NOT_SENT",
    ),
    "say drained although messages are left": Mutant(
        "syphon/drained_check.py",
        "self.not_receivable = not self._emptiness.are_empty()",
        "self.not_receivable = not self._emptiness.are_empty() and False",
    ),
    "forget message ids in duplicate detection": Mutant(
        "emulator/storage/duplicates.py",
        "            return True\n",
        "            return False\n",
    ),
    "forget a poll that ends with its query in the ledger": Mutant(
        "spark/long_polls.py",
        "        for poll in polls:\n"
        "            self._record_empty_poll(poll, answered=answered)\n",
        "",
    ),
    "stay draining if peeks are slow": Mutant(
        "pairing/health.py",
        "if now >= self.hold_until and not is_unused:",
        "if now >= self.hold_until:",
    ),
    "one empty peek instead of two in failback": Mutant(
        "pairing/health.py", "if self._empty_peeks == 2:", "if self._empty_peeks >= 1:"
    ),
    "send that joins a failover does not restart the count of empty peeks": Mutant(
        "pairing/health.py",
        "a peek in progress may miss it.\n        self._empty_peeks = -1\n",
        "a peek in progress may miss it.\n",
    ),
    "count a peek that began before the hold of another path": Mutant(
        "pairing/health.py",
        "            self._empty_peeks = -1  # a peek in progress began before the hold\n",
        "",
    ),
    "take a peek that failed for an empty queue": Mutant(
        "pairing/recovery.py",
        "            pairing.peek_failed(path, exc)\n            return\n",
        "            peek_round.add()\n            continue\n",
    ),
    "peek at one backlog queue only": Mutant(
        "pairing/recovery.py",
        "BacklogPeeks(pairing.rotation.queues, ",
        "BacklogPeeks(pairing.rotation.queues[:1], ",
    ),
    "let a session move to another backlog queue": Mutant(
        "pairing/backlog_state.py",
        "        queues = self._rotation.queues\n        key",
        "        queues = self._rotation.queues\n"
        "        queues = [q for q in queues if q not in self._rotation.pulled()] or queues\n"
        "        key",
    ),
    "arm the failover timer again with each failure": Mutant(
        "pairing/health.py",
        "        elif self._cause_unclear and not unclear:\n",
        "        self._next_at = now + self._settings.failover_interval_s\n"
        "        if self._cause_unclear and not unclear:\n",
    ),
    "do not cancel the failover timer after a success": Mutant(
        "pairing/health.py",
        "        self._busy_since = None\n        if self.status is PathStatus.SUSPECT:\n",
        "        self._busy_since = None\n        if False:\n",
    ),
    "do not restore a queue that accepts messages again": Mutant(
        "pairing/rotation.py",
        "        return self._pulled.pop(queue, None) is not None\n",
        "        self.release(queue)\n        return False\n",
    ),
    "keep the claim of a queue after a message was refused": Mutant(
        "pairing/rotation.py", "            pulled.probing = False\n", "            pass\n"
    ),
    "probe the secondary once only": Mutant(
        "pairing/secondary_health.py",
        "            self._probe = HostProbe(self._queues[following], now + self._interval_s)\n",
        "            self._probe = None\n",
    ),
    "lose the rest of a batch that is split": Mutant(
        "pairing/backlog_send.py",
        "                positions = positions[len(filled) :]\n",
        "                positions = []\n",
    ),
    "give a probe the whole timeout": Mutant(
        "pairing/operations.py",
        "call.links.factory, call.path, call.left_s / 2)",
        "call.links.factory, call.path)",
    ),
    "wait for the end of a hold beyond the timeout": Mutant(
        "pairing/operations.py",
        "        yield WaitForChange(changed, min(route.seconds, call.left_s))\n",
        "        yield WaitForChange(changed, route.seconds)\n",
    ),
    "leave the link of a ping open": Mutant(
        "pairing/recovery.py", "        yield Discard(sender)\n", "        pass\n"
    ),
    "leave links to the backlog open after failback": Mutant(
        "pairing/recovery.py", "        yield from close_standby_links(senders())\n", ""
    ),
    "leave the links of peeks open": Mutant(
        "pairing/recovery.py", "        yield CloseAll(tuple(receivers.values()))\n", ""
    ),
    "forget a peek that failed in the ledger": Mutant(
        "pairing/recovery.py",
        "                factory.usage.add_peek(path.name, None)\n",
        "                pass\n",
    ),
    "report only the last of several failed sends as unknown": Mutant(
        "pairing/backlog_send.py",
        "                    if may_have_arrived(exc):\n"
        "                        outcomes.transferred.update(filled)\n",
        "                    if may_have_arrived(exc):\n"
        "                        outcomes.transferred.update(filled[-1:])\n",
    ),
    "take a locked message for gone": Mutant(
        "syphon/session_order.py",
        "                self._held.add(message.session)\n",
        "                pass\n",
    ),
    "let a message pass one of its session that is late": Mutant(
        "spark/destination_sender.py",
        "message.locked_until < min_locked_until or message.session_id in self._skipped_sessions\n",
        "message.locked_until < min_locked_until\n",
    ),
    "send messages of a session while others are in flight": Mutant(
        "spark/destination_sender.py",
        "            or any(sessions & batch.sessions for batch in self._in_flight)\n",
        "",
    ),
    "send on after the destination has failed": Mutant(
        "spark/destination_sender.py",
        "            self._error = error\n            self._recorder.destination_failed",
        "            self._recorder.destination_failed",
    ),
    "late task does not renew its first lock": Mutant(
        "spark/queue_reader.py",
        "        if not is_retry() and not is_short(first.locked_until, first.lock_ms, "
        "wall_clock_ms()):\n            return first\n",
        "        if True:\n            return first\n",
    ),
    "complete messages that the destination rejected": Mutant(
        "spark/destination_sender.py",
        "        self._recorder.not_delivered(self._path, messages, delivery.error)\n"
        "        if self._is_throttled",
        "        self._recorder.delivered(self._path, messages)\n        if self._is_throttled",
    ),
    "record a send without an answer as answered": Mutant(
        "spark/outcome.py",
        "        self._record_sends(destination, messages, answered=False)\n",
        "        self._record_sends(destination, messages, answered=True)\n",
    ),
    "forget settlements in the ledger": Mutant(
        "spark/settler.py",
        "            self._usage.add_settlements(\n"
        "                _KINDS[request.status], destinations, answered=error is None\n"
        "            )\n",
        "            pass\n",
    ),
    "hide locked messages from a peek": Mutant(
        "emulator/entities/queue.py",
        "        return self._messages.all_after(self.id, after, limit, session, max_bytes)\n",
        "        messages = self._messages.all_after(self.id, after, limit, session, max_bytes)\n"
        "        return [message for message in messages if message.sequence not in self._locks]\n",
    ),
    "keep messages whose locks have expired": Mutant(
        "emulator/entities/queue.py",
        "        for lock in self._locks.remove_expired(now_ms):\n"
        "            self._return(lock.message, now_ms)\n",
        "        self._locks.remove_expired(now_ms)\n",
    ),
    "use sequence numbers again after a restart": Mutant(
        "emulator/entities/sequence_numbers.py",
        "self._reserved = number + RESERVATION_SIZE\n",
        "self._reserved = number\n",
    ),
    "answer sends although the commit has failed": Mutant(
        "emulator/runtime.py",
        "        try:\n            self.turn()\n        except StoreFailed:\n            return\n",
        "        try:\n            self.turn()\n        except StoreFailed:\n"
        "            for reply in self._replies:\n                reply()\n",
    ),
    "drain on although the namespace throttles": Mutant(
        "spark/pace.py",
        "        self.throttled += 1\n        now = self.now()\n",
        "        self.throttled += 1\n        return\n        now = self.now()\n",
    ),
    "do not wait for as long as a throttled namespace asks": Mutant(
        "spark/rate_control.py",
        "        resume_at = max(self.resume_at, now + min(wait_s, MAX_WAIT_S))\n",
        "        resume_at = now\n",
    ),
    "do not lower the rate after a throttled operation": Mutant(
        "spark/rate_control.py",
        "        return RateLimit(limit, max(decrease * limit, MIN_RATE), now, resume_at)\n",
        "        limit = limit if allowed is None else allowed\n"
        "        return RateLimit(limit, limit, now, resume_at)\n",
    ),
    "send without a pace": Mutant(
        "spark/destination_sender.py", "        self._pace.wait(len(messages))\n", ""
    ),
    "receive without a pace": Mutant("spark/paced_receive.py", "        pace.wait(size)\n", ""),
    "do not tell other tasks that a namespace throttles": Mutant(
        "spark/pace.py", "            self.file.write(self._limit)\n", "            pass\n"
    ),
    "open a standby link twice": Mutant(
        "pairing/standby_links.py",
        "    if links.standby.setdefault(queue, sender) is not sender:\n",
        "    links.standby[queue] = sender\n    if False:\n",
    ),
    "forget a lost answer of a queue if the path is healthy": Mutant(
        "pairing/operations.py",
        "        if failure is None or not may_have_arrived(failure.error):\n",
        "        if True:\n",
    ),
    "forget the credit of other polls after an error": Mutant(
        "spark/long_polls.py",
        "                        # The credit of a link that did not end is still outstanding.\n",
        "                        if poll.receiver.error is None:\n"
        "                            poll.credit_since = None\n",
    ),
    "forget a renewal without an answer in the ledger": Mutant(
        "spark/long_polls.py",
        "            self._record(OperationKind.RENEW, message, answered=False)\n",
        "",
    ),
    "one peek determines a mark": Mutant(
        "pairing/backlog_peeks.py",
        "            if queue not in marks and self._misses < MARK_MISSES:\n",
        "            if False:\n",
    ),
    "settle at the end of a task only": Mutant(
        "spark/settler.py",
        "            if now - request.created_at >= SEND_AFTER_S:\n",
        "            if False:\n",
    ),
    "track the deliveries of long polls for ever": Mutant(
        "spark/long_polls.py",
        "            delivery.link.session.incoming.unsettled.pop(delivery.id, None)\n",
        "",
    ),
    "client options that have no hash": Mutant(
        "amqp/sasl.py",
        "    responses: Mapping[str, bytes] = field(repr=False, hash=False)\n",
        "    responses: Mapping[str, bytes] = field(repr=False)\n",
    ),
    "count misses of a mark with a message between them": Mutant(
        "pairing/backlog_peeks.py",
        "            self._found, self._misses = self._step, 0\n",
        "            self._found, self._misses = self._step, int(self._missed > 0)\n",
    ),
    "keep a connection whose peer is silent": Mutant(
        "amqp/client/client.py",
        "                if not may_be_silent and self._is_silent_since(began):\n"
        "                    self._give_up(error)\n",
        "",
    ),
    "take a lost connection for the answer to a close": Mutant(
        "amqp/client/client.py",
        "        return engine is not None and engine.closed_by_peer\n",
        "        return engine is not None and engine.closed\n",
    ),
    "let an asynchronous call wait for its turn without a limit": Mutant(
        "pairing/aio/driver.py",
        "        async with asyncio.timeout(timeout_s) as timeout:\n",
        "        async with asyncio.timeout(1e6) as timeout:\n",
    ),
    "let an asynchronous call over an open link take any time": Mutant(
        "pairing/aio/deadlines.py",
        "            if now >= limit.deadline:\n",
        "            if False:\n",
    ),
    "let an asynchronous call that opens its link take any time": Mutant(
        "pairing/aio/deadlines.py",
        "        done, _ = await asyncio.wait((task,), timeout=timeout_s)\n",
        "        done, _ = await asyncio.wait((task,))\n",
    ),
    "send to the primary after an asynchronous call has waited": Mutant(
        "pairing/aio/sender.py",
        "                    if not self._is_healthy() or not is_open(links.primary_sender()):\n",
        "                    if not is_open(links.primary_sender()):\n",
    ),
    "wake no operation of an event loop": Mutant(
        "pairing/aio/driver.py",
        "        changed.set()\n",
        "        _ = changed\n",
    ),
    "use the sender of a cancelled call again": Mutant(
        "pairing/sender_links.py",
        "_INTERRUPTIONS = (CallTimedOut, asyncio.CancelledError, ",
        "_INTERRUPTIONS = (CallTimedOut, ",
    ),
    "call the primary after an operation has waited for its turn": Mutant(
        "pairing/sender_links.py",
        "            if self.path.health.route(self.pairing.now()) is not Route.PRIMARY:\n"
        "                raise FailedOver\n",
        "",
    ),
    "send to the primary after a call has waited for its turn": Mutant(
        "pairing/sender.py",
        "            if not self._is_healthy():  # it changed while this call waited for its turn\n"
        "                return False, None\n",
        "",
    ),
    "close without the links that background operations discard": Mutant(
        "pairing/driver.py",
        "        while (threads := self._threads - {threading.current_thread()}) and monotonic()",
        "        if (threads := self._threads - {threading.current_thread()}) and monotonic()",
    ),
    "close while a call probes the primary": Mutant(
        "pairing/sender_links.py",
        "        yield WaitForChange(lambda: self._probes == 0, CLOSE_TIMEOUT_S)\n",
        "",
    ),
    "peek at all backlog queues before closing": Mutant(
        "pairing/recovery.py",
        "        if pairing.primary.down:\n            return\n        queue, number = request\n",
        "        queue, number = request\n",
    ),
    "close an asynchronous client without waiting for background operations": Mutant(
        "pairing/aio/driver.py",
        "        while tasks := self._tasks - {asyncio.current_task()}:\n",
        "        while tasks := set():\n",
    ),
    "end a query without closing the connection that checks for emptiness": Mutant(
        "syphon/planner.py",
        "        self._drained.close()\n",
        "",
    ),
    "plan micro-batches while the syphon is paused": Mutant(
        "syphon/planner.py",
        "        if self._control.paused:\n",
        "        if False:\n",
    ),
    "send messages to a destination that is paused": Mutant(
        "syphon/batch_builder.py",
        "            paused=self._control.paused_destinations,\n",
        "            paused=frozenset(),\n",
    ),
    "store messages without the time that they are scheduled for": Mutant(
        "pairing/operations.py",
        "store(call, payloads, enqueue_at, error)",
        "store(call, payloads, None, error)",
    ),
    "restore messages without the time that they are scheduled for": Mutant(
        "transfer.py",
        "        if scheduled is not None:\n            count, entries",
        "        if False:\n            count, entries",
    ),
    "forget that a message may have been scheduled": Mutant(
        "pairing/operations.py",
        "store(call, payloads, enqueue_at, error)",
        "store(call, payloads, enqueue_at, None)",
    ),
    "take scheduled messages of a path in failover for cancelled": Mutant(
        "pairing/operations.py",
        "        yield from ()\n        raise SendUnavailable(\n",
        "        yield from ()\n        return\n        raise SendUnavailable(\n",
    ),
    "repeat a micro-batch that was planned before a restart": Mutant(
        "spark/stream_reader.py",
        "        plan = self._plans.get(number)\n        if plan is None or number",
        "        plan = self._plans.get(number)\n"
        "        if plan is None:\n"
        "            return [PartitionPlan(tuple(self._queues), (), 500, frozenset())]\n"
        "        if plan is None or number",
    ),
    "dead-letter messages while their destination is full": Mutant(
        "spark/verdicts.py", "NotAuthorized | QuotaExceeded)", "NotAuthorized)"
    ),
    "dead-letter messages as soon as their destination is missing": Mutant(
        "syphon/missing_destinations.py", "    if grace_s == 0:\n", "    if True:\n"
    ),
    "report a backlog queue that is full or missing to the caller": Mutant(
        "pairing/failures.py",
        "    if _is_about_entity(error):\n        return BacklogFailure.QUEUE_UNAVAILABLE\n",
        "",
    ),
    "take a token that was refused for an outage": Mutant(
        "pairing/failures.py",
        "        case int() if 400 <= status < 500:\n            return FailureKind.CALLER\n",
        "",
    ),
    "keep the management links of an entity that is deleted": Mutant(
        "emulator/runtime.py", "if link.node.entity is entity]", "if False]"
    ),
    "redrive a session past a message that is locked": Mutant(
        "backlog/redrive_round.py",
        "            is_next = message.session_id is None or missing is None or number < missing\n",
        "            is_next = True\n",
    ),
    "take a dead letter that another redrive has locked for gone": Mutant(
        "backlog/redrive_round.py",
        "gone = [n for n in expected if number is None or n < number]",
        "gone = list(expected)",
    ),
    "forget the queues that a cancelled redrive did not reach": Mutant(
        "backlog/redrive.py", '                total.left[""] += len(numbers)\n', ""
    ),
    "forget a failed peek of a redrive in the ledger": Mutant(
        "backlog/redrive_round.py",
        "                self._usage.add(OperationKind.PEEK, self._entity, answered=False)\n",
        "",
    ),
    "forget a failed peek of a plan in the ledger": Mutant(
        "backlog/peek.py",
        "            if on_peek is not None:\n                on_peek(None)\n            raise\n",
        "            raise\n",
    ),
    "forget a receive that ends a redrive in the ledger": Mutant(
        "backlog/redrive_round.py",
        "        finally:\n            for _ in range(link.empty_receives - empty_receives):\n",
        "        else:\n            for _ in range(link.empty_receives - empty_receives):\n",
    ),
    "ping again soon after a ping that failed": Mutant(
        "pairing/health.py",
        "        if not succeeded:\n            self._schedule_ping(now)\n",
        "        if not succeeded:\n            self._next_at = now + 0.5\n",
    ),
    "ping too late after a ping that failed": Mutant(
        "pairing/health.py",
        "        if not succeeded:\n            self._schedule_ping(now)\n",
        "        if not succeeded:\n            self._next_at = now + 60.0\n",
    ),
    "fail over because of throttling although the option is off": Mutant(
        "pairing/health.py",
        "        limit_s = self._settings.failover_on_busy_s\n",
        "        limit_s = self._settings.failover_on_busy_s or 0.0\n",
    ),
    "end a failover by a ping of an earlier one": Mutant(
        "pairing/state.py",
        "            if path.health.next_step() == step:\n",
        "            if True:\n",
    ),
    "report each failure of a backlog queue as a pull": Mutant(
        "pairing/backlog_state.py",
        "            if self._rotation.failed(queue, error, now, unreachable=unreachable):\n",
        "            self._rotation.failed(queue, error, now, unreachable=unreachable)\n"
        "            if True:\n",
    ),
}
