"""Config.json of the official emulator is read, and every error names its position."""

import contextlib
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.emulator.config import NamespaceConfig, read_config
from pairbus.emulator.entities.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.emulator.filters.rules import CorrelationFilter, Rule, SqlAction, SqlFilter
from pairbus.emulator.jsonc import parse_jsonc
from pairbus.emulator.tiers import STANDARD, tier_of
from pairbus.errors import ConfigurationError

# The form of the emulator's own sample: comments, empty strings, all three kinds of rules.
SAMPLE = """\
{ // the whole
  "UserConfig": {
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          {
            "Name": "queue.1",
            "Properties": {
              "DeadLetteringOnMessageExpiration": true,
              "DefaultMessageTimeToLive": "PT1H",
              "DuplicateDetectionHistoryTimeWindow": "PT20S",
              "ForwardDeadLetteredMessagesTo": "",
              "ForwardTo": "dir/queue-2",
              "LockDuration": "PT1M", /* one
                                         minute */
              "MaxDeliveryCount": 3,
              "RequiresDuplicateDetection": false,
              "RequiresSession": false
            }
          },
          { "Name": "dir/queue-2" }
        ],
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": { "DefaultMessageTimeToLive": "PT1H", "EnableExpress": true },
            "Subscriptions": [
              {
                "Name": "plain",
                "Properties": { "MaxDeliveryCount": 5, "ForwardTo": "QUEUE.1" }
              },
              {
                "Name": "filtered",
                "Rules": [
                  {
                    "Name": "correlated",
                    "Properties": {
                      "FilterType": "Correlation",
                      "CorrelationFilter": {
                        "ContentType": "application/json"
                        // "Label": "subject // not a comment in a comment",
                      }
                    }
                  },
                  {
                    "Name": "own",
                    "Properties": {
                      "FilterType": "correlation",
                      "CorrelationFilter": {
                        "To": "http://x/*y*/",
                        "Properties": { "p": "v", "n": 1, "b": true, "d": 0.5, },
                      },
                    },
                  },
                  {
                    "Name": "$Default",
                    "Properties": {
                      "FilterType": "Sql",
                      "SqlFilter": { "SqlExpression": "sys.MessageId = '1' AND a = 'b,}'" },
                      "Action": { "SqlExpression": "SET sys.To = 'x'" }
                    }
                  }
                ]
              }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""


def test_official_config_is_read():
    (namespace,) = read_config(SAMPLE)

    hour = timedelta(hours=1)
    assert namespace.name == "sbemulatorns"
    assert namespace.queues == (
        QueueDescription(
            name="queue.1",
            dead_lettering_on_message_expiration=True,
            default_message_time_to_live=hour,
            duplicate_detection_history_time_window=timedelta(seconds=20),
            forward_to="dir/queue-2",
            max_delivery_count=3,
        ),
        QueueDescription(name="dir/queue-2"),
    )
    (topic,) = namespace.topics
    assert topic.description == TopicDescription(
        name="topic.1", default_message_time_to_live=hour, enable_express=True
    )
    plain, filtered = topic.subscriptions
    assert plain.description == SubscriptionDescription(
        topic="topic.1", name="plain", max_delivery_count=5, forward_to="QUEUE.1"
    )
    assert plain.rules == ()
    assert filtered.description == SubscriptionDescription(topic="topic.1", name="filtered")
    assert filtered.rules == (
        Rule(name="correlated", filter=CorrelationFilter(content_type="application/json")),
        Rule(
            name="own",
            filter=CorrelationFilter(
                to="http://x/*y*/", properties={"p": "v", "n": 1, "b": True, "d": 0.5}
            ),
        ),
        Rule(
            name="$Default",
            filter=SqlFilter("sys.MessageId = '1' AND a = 'b,}'"),
            action=SqlAction("SET sys.To = 'x'"),
        ),
    )


def config(**namespace: Any) -> str:
    named = {"Name": "n", **namespace}
    return json.dumps({"UserConfig": {"Namespaces": [named]}})


def queue(name: str = "q", **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}


def rule(**properties: Any) -> str:
    subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": properties}]}
    return config(Topics=[{"Name": "t", "Subscriptions": [subscription]}])


def test_missing_properties_have_the_defaults_of_service_bus():
    assert read_config(config(Queues=[{"Name": "q", "Properties": None}])) == (
        NamespaceConfig(name="n", queues=(QueueDescription(name="q"),)),
    )


def test_every_property_of_a_description_is_accepted_in_any_case():
    text = config(queues=[queue(STATUS="disabled", autodeleteonidle="P1D", supportOrdering=True)])

    assert read_config(text)[0].queues == (
        QueueDescription(
            name="q",
            status=EntityStatus.DISABLED,
            auto_delete_on_idle=timedelta(days=1),
            support_ordering=True,
        ),
    )


@pytest.mark.rule("N1")
def test_namespace_can_have_a_tier():
    text = '{"UserConfig": {"Namespaces": [{"Name": "n"%s}]}}'
    assert read_config(text % "")[0].tier is None
    assert read_config(text % ', "Tier": "standard"')[0].tier is STANDARD
    premium = read_config(text % ', "tier": "Premium", "MessagingUnits": 4')[0].tier
    assert premium == tier_of("premium", 4)


def test_config_can_have_several_namespaces():
    text = json.dumps({"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "b"}]}})

    assert [namespace.name for namespace in read_config("\ufeff" + text)] == ["a", "b"]


TOPIC = {"Name": "t", "Subscriptions": [{"Name": "s"}, {"Name": "S"}]}
RULES = {"Name": "r", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}}
N = r"UserConfig\.Namespaces\[0\]"
R = N + r"\.Topics\[0\]\.Subscriptions\[0\]\.Rules\[0\]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: invalid JSON"),
        ('{\n  "UserConfig" {}\n}', "line 2, column 16: invalid JSON"),
        ('/* a\n\n*/ {"UserConfig": {,}}', "line 3, column 20: invalid JSON"),
        ('{"UserConfig": {} /* }', "invalid JSON"),
        ('{"a": NaN}', "NaN is not valid JSON"),
        ('{"a": 1, "A": 2}', "'A' occurs twice in one object"),
        ("[" * 100_000, "cannot be read"),
        ('{"UserConfig": ' + "9" * 5000 + "}", "cannot be read"),
        ("[]", r"the file: expected an object, not \[\]"),
        ("{}", "UserConfig is missing"),
        ('{"UserConfig": {}}', "UserConfig: Namespaces is missing"),
        ('{"Users": {}}', "the file: unknown name 'Users'. Use one of UserConfig"),
        ('{"UserConfig": {"Namespaces": {}}}', r"UserConfig\.Namespaces: expected a list"),
        ('{"UserConfig": {"Namespaces": [{}]}}', f"{N}: Name is missing"),
        (config(Name=1), rf"{N}\.Name: expected a string, not 1"),
        (config(Name="a/b"), rf"{N}\.Name: 'a/b' cannot be the name of a namespace"),
        (config(Queue=[]), f"{N}: unknown name 'Queue'. Use one of Name, Queues, Topics"),
        (config(Queues=[queue("a b")]), rf"{N}\.Queues\[0\]\.Name: 'a b' cannot be a queue"),
        (
            config(Queues=[queue(), queue(LockDuration=5)]),
            rf"^{N}\.Queues\[1\]\.Properties\.LockDuration: expected a string, not 5$",
        ),
        (
            config(Queues=[queue(LockDuration="5m")]),
            r"LockDuration: '5m' is not an ISO 8601 duration",
        ),
        (
            config(Queues=[queue(LockDuration="PT6M")]),
            rf"{N}\.Queues\[0\]: LockDuration of 'q' is PT6M. It must be from PT0\.001S to PT5M",
        ),
        (config(Queues=[queue(MaxDeliveryCount="3")]), 'expected a whole number, not "3"'),
        (config(Queues=[queue(MaxDeliveryCount=True)]), "expected a whole number, not true"),
        (config(Queues=[queue(MaxDeliveryCount=1.5)]), "expected a whole number, not 1.5"),
        (config(Queues=[queue(RequiresSession="no")]), 'expected true or false, not "no"'),
        (
            config(Queues=[queue(Status="Busy")]),
            r"Properties\.Status: 'Busy' is not a status. Use one of Active",
        ),
        (config(Queues=[queue(AuthorizationRules=[])]), "unknown name 'AuthorizationRules'"),
        (config(Queues=[queue(), queue("Q")]), r"Queues\[1\]: another entity has the name 'Q'"),
        (
            config(Queues=[queue()], Topics=[{"Name": "q"}]),
            r"Topics\[0\]: another entity has the name 'q'",
        ),
        (config(Queues=[queue(ForwardTo="x")]), r"Queues\[0\]: ForwardTo of 'q' is 'x', which"),
        (config(Topics=[TOPIC]), r"Subscriptions\[1\]: another subscription has the name 'S'"),
        (
            config(Topics=[{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": [RULES] * 2}]}]),
            r"Rules\[1\]: another rule has the name 'r'",
        ),
        (rule(), rf"{R}\.Properties: FilterType must be Sql or Correlation, not ''"),
        (rule(FilterType="SqlFilter"), "FilterType must be Sql or Correlation, not 'SqlFilter'"),
        (rule(FilterType="Sql"), "FilterType is Sql, but SqlFilter is missing"),
        (rule(FilterType="Sql", SqlFilter={}), rf"{R}.*SqlFilter: SqlExpression is missing"),
        (
            rule(FilterType="Sql", SqlFilter={"SqlExpression": "a ="}),
            rf"{R}\.Properties: .*line 1, column",
        ),
        (
            rule(FilterType="Sql", SqlFilter={"SqlExpression": "1=1"}, Action={}),
            r"Properties\.Action: SqlExpression is missing",
        ),
        (
            rule(FilterType="Correlation", CorrelationFilter={"Subject": "x"}),
            "unknown name 'Subject'. Use one of CorrelationId",
        ),
        (
            rule(FilterType="Correlation", CorrelationFilter={"Properties": {"p": [1]}}),
            r"CorrelationFilter\.Properties\.p: expected a string, number or boolean",
        ),
    ],
)
def test_error_names_the_position(text: str, message: str):
    with pytest.raises(ConfigurationError, match=message):
        read_config(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text("abc,:}", max_size=5), children)
    ),
)


@given(JSON, st.sampled_from([None, 2]))
def test_plain_json_is_read_unchanged(value: Any, indent: int | None):
    assert parse_jsonc(json.dumps(value, indent=indent, ensure_ascii=False)).value == value


@given(st.text(max_size=50) | st.text('{}[]",:/*\\ \nab1', max_size=50))
def test_any_text_is_read_or_raises_a_configuration_error(text: str):
    with contextlib.suppress(ConfigurationError):
        read_config(text)
