"""Atom documents of the administration API: entries that are written, and responses as read."""

from datetime import timedelta

import pytest

from pairbus.emulator.admin.atom_reader import parse_description
from pairbus.emulator.entities.descriptions import QueueDescription
from pairbus.errors import AmqpError, EntityNotFound, Refused, Unavailable
from pairbus.servicebus import atom
from pairbus.servicebus.atom import QueueProperties
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.time_spans import MAX_TIME_SPAN, MAX_TIME_SPAN_TEXT

SERVICE = b"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
ENTRY = (
    b'<entry xmlns="http://www.w3.org/2005/Atom"><title>q</title>'
    b'<content type="application/xml"><QueueDescription xmlns="' + SERVICE + b'" '
    b'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT1M</LockDuration>'
    b"<RequiresDuplicateDetection>true</RequiresDuplicateDetection>"
    b"<RequiresSession>false</RequiresSession><SizeInBytes>512</SizeInBytes>"
    b"<MessageCount>9</MessageCount><AuthorizationRules>"
    b'<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey'
    b"</ClaimType><ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights>"
    b"<KeyName>k</KeyName><PrimaryKey>secret</PrimaryKey></AuthorizationRule>"
    b"</AuthorizationRules><Status>Active</Status>"
    b'<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">'
    b"<d2p1:ActiveMessageCount>5</d2p1:ActiveMessageCount>"
    b"<d2p1:DeadLetterMessageCount>4</d2p1:DeadLetterMessageCount>"
    b"<d2p1:TransferDeadLetterMessageCount>1</d2p1:TransferDeadLetterMessageCount>"
    b"</CountDetails><UserMetadata>a &amp; b</UserMetadata></QueueDescription></content></entry>"
)
TOPIC = ENTRY.replace(b"QueueDescription", b"TopicDescription")


def test_queue_is_read_with_its_settings_and_counts():
    assert atom.read_queue("q", ENTRY) == QueueProperties(
        path="q",
        status=EntityStatus.ACTIVE,
        requires_session=False,
        requires_duplicate_detection=True,
        active_message_count=5,
        dead_letter_message_count=4,
        size_in_bytes=512,
        lock_duration=timedelta(minutes=1),
    )


def test_settings_of_a_queue_are_read():
    written = atom.write_queue(
        {
            "lock_duration": timedelta(seconds=10),
            "max_size_in_megabytes": 2048,
            "default_message_time_to_live": MAX_TIME_SPAN,
            "dead_lettering_on_message_expiration": True,
            "max_delivery_count": 10,
            "auto_delete_on_idle": timedelta(days=1),
        }
    )
    counts = b"".join(
        b"<%b>0</%b>" % (name, name)
        for name in (b"SizeInBytes", b"ActiveMessageCount", b"DeadLetterMessageCount")
    )
    more = b"<EnablePartitioning>true</EnablePartitioning><ForwardTo>sb://x/other</ForwardTo>"
    queue = atom.read_queue(
        "q", written.replace(b"</QueueDescription>", counts + more + b"</QueueDescription>")
    )

    assert queue.lock_duration == timedelta(seconds=10)
    assert queue.max_size_in_megabytes == 2048
    assert queue.default_message_time_to_live == MAX_TIME_SPAN
    assert queue.dead_lettering_on_message_expiration
    assert queue.max_delivery_count == 10
    assert queue.auto_delete_on_idle == timedelta(days=1)
    assert queue.enable_partitioning
    assert queue.forward_to == "sb://x/other"


@pytest.mark.parametrize("text", [b"", b"soon", b"P99999999D"])
def test_setting_in_an_unknown_form_is_none(text: bytes):
    queue = atom.read_queue("q", ENTRY.replace(b">PT1M<", b">%b<" % text))

    assert queue.lock_duration is None
    assert queue.max_delivery_count is None


def test_topic_is_read_with_its_settings():
    topic = atom.read_topic("t", TOPIC.replace(b">Active<", b">SendDisabled<"))

    assert (topic.path, topic.status) == ("t", EntityStatus.SEND_DISABLED)
    assert topic.requires_duplicate_detection


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (b"<feed></feed>", EntityNotFound, "there is no queue or topic 'q'"),
        (TOPIC, Refused, "'q' is a topic, not a queue"),
        (b"<entry/>", Unavailable, "no description of 'q'"),
        (b"<entry><content/></entry>", Unavailable, "no description of 'q'"),
        (b"<html><body/></html>", Unavailable, "no description of 'q'"),
        (ENTRY.replace(b">512<", b">many<"), Unavailable, "'q' without SizeInBytes"),
        (ENTRY.replace(b">4<", b"><"), Unavailable, "'q' without DeadLetterMessageCount"),
        (b"<html><p>not XML", Unavailable, "not XML"),
        (b"", Unavailable, "not XML"),
        (b"\xff\xfe\x00", Unavailable, "not XML"),
    ],
)
def test_response_that_is_not_a_queue_is_an_error(
    body: bytes, error: type[AmqpError], message: str
):
    with pytest.raises(error, match=message):
        atom.read_queue("q", body)


FEED = (
    b'<feed xmlns="http://www.w3.org/2005/Atom"><title>Queues</title>'
    b'<link rel="self" href="https://x/"/>%b' + ENTRY + b"</feed>"
)


def test_page_of_queues_has_the_queues_and_a_flag_for_more():
    last = atom.read_queues(FEED.replace(b"<title>q<", b"<title>a&amp;b/c<") % b"")
    other = atom.read_queues(FEED % b'<link rel="next" href="https://x/?$skip=2"/>')

    assert [queue.path for queue in last.queues] == ["a&b/c"]
    assert last.queues[0].active_message_count == 5
    assert not last.more
    assert other.more
    assert atom.read_queues(b"<feed/>") == ([], False)


@pytest.mark.parametrize(
    "body",
    [
        b"<html/>",
        b"not XML",
        b"<feed><entry/></feed>",
        b"<feed><entry><title>q</title></entry></feed>",
    ],
)
def test_response_that_is_not_a_list_of_queues_is_an_error(body: bytes):
    with pytest.raises(Unavailable):
        atom.read_queues(body)


def test_settings_are_written_in_the_order_of_the_service():
    body = atom.write_queue(
        {
            "auto_delete_on_idle": MAX_TIME_SPAN,
            "requires_session": True,
            "max_size_in_megabytes": 5120,
            "lock_duration": timedelta(minutes=1),
            "status": EntityStatus.SEND_DISABLED,
        }
    )

    assert body.endswith(
        b'<QueueDescription xmlns="' + SERVICE + b'"><LockDuration>PT1M</LockDuration>'
        b"<MaxSizeInMegabytes>5120</MaxSizeInMegabytes><RequiresSession>true</RequiresSession>"
        b"<Status>SendDisabled</Status><AutoDeleteOnIdle>"
        + MAX_TIME_SPAN_TEXT.encode()
        + b"</AutoDeleteOnIdle></QueueDescription></content></entry>"
    )
    parsed = parse_description(body)
    assert parsed.kind is QueueDescription
    assert parsed.settings["lock_duration"] == timedelta(minutes=1)


def test_entry_without_settings_leaves_all_defaults_to_the_service():
    assert parse_description(atom.write_topic({})).settings == {}
    assert parse_description(atom.write_subscription({})).settings == {}


def test_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="unknown settings of a QueueDescription: colour"):
        atom.write_queue({"colour": "red"})  # type: ignore[typeddict-unknown-key]


def test_status_update_keeps_all_settings_and_drops_computed_values():
    update = atom.replace_status("q", ENTRY, EntityStatus.DISABLED)
    before, after = parse_description(ENTRY), parse_description(update.body)

    assert after.settings == {**before.settings, "status": EntityStatus.DISABLED}
    assert after.settings["user_metadata"] == "a & b"
    assert after.settings["authorization_rules"][0].primary_key == "secret"
    assert b"MessageCount" not in update.body
    assert b"SizeInBytes" not in update.body
    assert not update.forwards
    assert not update.dead_letters_forward


def test_status_update_reports_the_forwarding_that_needs_a_token():
    forwards = ENTRY.replace(b"<UserMetadata>", b"<ForwardTo>sb://h/t</ForwardTo><UserMetadata>")
    dead_letters = ENTRY.replace(
        b"<UserMetadata>",
        b"<ForwardDeadLetteredMessagesTo>t</ForwardDeadLetteredMessagesTo><UserMetadata>",
    )

    assert atom.replace_status("q", forwards, EntityStatus.ACTIVE)[1:] == (True, False)
    assert atom.replace_status("q", dead_letters, EntityStatus.ACTIVE)[1:] == (False, True)


def test_status_of_a_description_without_one_is_an_error():
    with pytest.raises(Unavailable, match="'q' without a status"):
        atom.replace_status(
            "q", ENTRY.replace(b"<Status>Active</Status>", b""), EntityStatus.ACTIVE
        )


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"<Error><Code>409</Code><Detail> Conflict. </Detail></Error>", "Conflict."),
        (b"<Error><Code>409</Code></Error>", ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_detail_of_an_error_response_is_read_if_present(body: bytes, detail: str):
    assert atom.read_error(body) == detail
