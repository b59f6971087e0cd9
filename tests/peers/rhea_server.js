'use strict';
/*
 * rhea as a server: lets links attach, accepts what it gets, sends as it is told.
 *
 * What must be decided on the spot is told before, by address:
 *   refuse   an error: no link may attach
 *   bare     true: a link attaches without source and target, as rhea's own examples do
 *   verdict  {outcome, error, fields}: how a message fares that is not settled
 *   hold     true: a message is not settled but on command
 *   cut      true: the connection is cut when a message comes
 *   deny     an error: a settlement that waits for our word is not granted
 */
const {rhea, watch, obey, settle, confirm, options_of, error_of, address_of} = require('./rhea_talk.js');

const rules = {};
const connections = new Set();

function rule_of(link) {
    return rules[(link.is_sender() ? link.source : link.target).address] || {};
}

function answer_attach(link) {
    const rule = rule_of(link);
    if (rule.refuse) {
        link.close(error_of(rule.refuse));  // without a terminus, and so refused as AMQP wants it
        return;
    }
    // rhea leaves out of its answer what it is not told to put there.
    link.local.attach.snd_settle_mode = link.snd_settle_mode;
    link.local.attach.rcv_settle_mode = link.rcv_settle_mode;
    if (rule.bare) return;
    // Not the peer's own objects: rhea would change them, and with an empty one all empty lists.
    link.set_source({address: address_of(link.source)});
    link.set_target({address: address_of(link.target)});
}

function answer_outcome({sender, delivery}) {
    const {deny} = rule_of(sender);
    if (!delivery.remote_settled) confirm(delivery, deny && {error: deny});
}

watch(rhea, {
    connection_open: ({connection}) => connections.add(connection),
    disconnected: ({connection}) => connections.delete(connection),
    sender_open: ({sender}) => answer_attach(sender),
    receiver_open: ({receiver}) => answer_attach(receiver),
    sender_draining: ({sender}) => sender.set_drained(true),
    accepted: answer_outcome,
    rejected: answer_outcome,
    released: answer_outcome,
    modified: answer_outcome,
    settled: ({delivery}) => {
        delivery.settled = true;
    },
    message: ({receiver, delivery, connection}) => {
        const {verdict, hold, cut} = rule_of(receiver);
        if (cut) connection.socket.destroy();
        else if (!hold) settle(delivery, verdict || {outcome: 'accepted'});
    },
});

obey({
    listen({options, users, anonymous}) {
        if (anonymous) rhea.sasl_server_mechanisms.enable_anonymous();
        if (users) rhea.sasl_server_mechanisms.enable_plain((name, password) => users[name] === password);
        const given = Object.assign({
            host: '127.0.0.1',
            port: 0,
            receiver_options: {autoaccept: false},
            sender_options: {treat_modified_as_released: false},
        }, options_of(options));
        return new Promise((resolve, reject) => {
            const server = rhea.listen(given);
            server.on('listening', () => resolve({port: server.address().port}));
            server.on('error', reject);
            server.on('tlsClientError', () => undefined);
        });
    },
    rule({address, rule}) {
        rules[address] = rule;
    },
    close({error}) {
        connections.forEach((connection) => connection.close(error_of(error)));
    },
    cut() {
        connections.forEach((connection) => connection.socket.destroy());
    },
});
