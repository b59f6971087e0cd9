// Topics, subscriptions, and their rules over AMQP.
"use strict";

const { assert, bodies, collect, fails, receive } = require("./suite.js");

module.exports = {
  async "each subscription gets a copy"(context) {
    const topic = await context.topic("a", "b");
    await context.send(topic, [{ body: 1 }, { body: 2 }]);
    for (const name of ["a", "b"]) {
      const receiver = context.client.createReceiver(topic, name);
      const messages = await receive(receiver, 2);
      assert.deepEqual(bodies(messages), [1, 2]);
      await receiver.completeMessage(messages[0]);
      await receiver.deadLetterMessage(messages[1], { deadLetterReason: "reason" });
      const dead = context.client.createReceiver(topic, name, { subQueueType: "deadLetter" });
      assert.deepEqual(bodies(await receive(dead, 1)), [2]);
    }
  },

  async "rules are created, listed and deleted over AMQP"(context) {
    const topic = await context.topic("s");
    const manager = context.client.createRuleManager(topic, "s");
    assert.deepEqual((await manager.getRules()).map((rule) => rule.name), ["$Default"]);
    await manager.deleteRule("$Default");
    await manager.createRule("sql", { sqlExpression: "size > 10" }, {
      sqlExpression: "SET seen = 1",
    });
    await manager.createRule("correlation", {
      correlationId: "c",
      subject: "s",
      applicationProperties: { colour: "red", number: 5 },
    });
    const rules = Object.fromEntries((await manager.getRules()).map((rule) => [rule.name, rule]));
    assert.deepEqual(Object.keys(rules).sort(), ["correlation", "sql"]);
    assert.equal(rules.sql.filter.sqlExpression, "size > 10");
    assert.equal(rules.sql.action.sqlExpression, "SET seen = 1");
    assert.equal(rules.correlation.filter.correlationId, "c");
    assert.equal(rules.correlation.filter.subject, "s");
    assert.deepEqual(rules.correlation.filter.applicationProperties, { colour: "red", number: 5 });
    await manager.deleteRule("correlation");
    assert.deepEqual((await collect(manager.listRules())).map((rule) => rule.name), ["sql"]);
  },

  async "messages are filtered and changed by rules"(context) {
    const topic = await context.topic("s");
    const manager = context.client.createRuleManager(topic, "s");
    await manager.deleteRule("$Default");
    await manager.createRule("large", { sqlExpression: "size > 10" }, {
      sqlExpression: "SET seen = 'yes'",
    });
    await manager.createRule("red", { applicationProperties: { colour: "red" } });
    await context.send(topic, [
      { body: "small", applicationProperties: { size: 1 } },
      { body: "large", applicationProperties: { size: 11 } },
      { body: "red", applicationProperties: { colour: "red" } },
    ]);
    const messages = await receive(context.client.createReceiver(topic, "s"), 2);
    assert.deepEqual(bodies(messages), ["large", "red"]);
    assert.equal(messages[0].applicationProperties.seen, "yes");
  },

  async "a rule that exists or does not is an error"(context) {
    const topic = await context.topic("s");
    const manager = context.client.createRuleManager(topic, "s");
    await fails(manager.createRule("$Default", { sqlExpression: "1=1" }), "MessagingEntityAlreadyExists");
    await fails(manager.deleteRule("missing"), "MessagingEntityNotFound");
  },

  async "a topic schedules and forwards"(context) {
    const queue = await context.queue();
    const topic = context.name("topic");
    await context.admin.createTopic(topic);
    await context.admin.createSubscription(topic, "s", { forwardTo: queue });
    const sender = context.client.createSender(topic);
    await sender.scheduleMessages({ body: "x" }, new Date(Date.now() + 50));
    const [message] = await receive(context.client.createReceiver(queue), 1);
    assert.equal(message.body, "x");
  },
};
