'use strict';
/*
 * rhea as a server: it accepts links and messages, and sends messages of its queues.
 *
 * Rules change its behaviour, by address:
 *   refuse   an error: links are refused
 *   bare     true: a link attaches without source and target
 *   state    {outcome, error, fields}: messages are settled with this state instead of accepted
 *   hold     true: messages are settled on command only
 *   cut      true: the connection is cut when a message arrives
 */
const {
    rhea, report_events, run_commands, settle, confirm, options_of, error_of, address_of, message_of, bytes,
} = require('./rhea_commands.js');

const rules = {};
const queues = {};
const connections = new Set();
const open_links = new Set();
let settlement_error;

function link_address(link) {
    return address_of(link.is_sender() ? link.source : link.target);
}

function rule_of(link) {
    return rules[link_address(link)] || {};
}

function find_link(address) {
    const link = [...open_links].find((candidate) => link_address(candidate) === address);
    if (!link) throw new Error(`no link is attached to ${address}`);
    return link;
}

/** Send the messages of a queue. rhea keeps messages without credit. */
function send_queued(address) {
    const sender = [...open_links].find((link) => link.is_sender() && link_address(link) === address);
    while (sender && (queues[address] || []).length) {
        const {message, payload, format} = queues[address].shift();
        if (message) sender.send(message_of(message));
        else sender.send(bytes(payload), undefined, format);
    }
}

function answer_attach(link) {
    const rule = rule_of(link);
    if (rule.refuse) {
        link.close(error_of(rule.refuse));  // The attach has no terminus, as AMQP requires.
        return;
    }
    // rhea does not repeat the settle modes of the peer in its attach.
    link.local.attach.snd_settle_mode = link.snd_settle_mode;
    link.local.attach.rcv_settle_mode = link.rcv_settle_mode;
    open_links.add(link);
    if (rule.bare) return;
    // Copies: rhea would change the objects of the peer, which may share one empty list.
    link.set_source({address: address_of(link.source)});
    link.set_target({address: address_of(link.target)});
    if (link.is_sender()) setImmediate(() => send_queued(link_address(link)));
}

function answer_outcome({delivery}) {
    if (delivery.remote_settled) return;
    const error = settlement_error;
    settlement_error = undefined;
    confirm(delivery, error);
}

function forget_connection(connection) {
    connections.delete(connection);
    open_links.forEach((link) => {
        if (link.connection === connection) open_links.delete(link);
    });
}

report_events(rhea, {
    connection_open: ({connection}) => connections.add(connection),
    disconnected: ({connection}) => forget_connection(connection),
    sender_open: ({sender}) => answer_attach(sender),
    receiver_open: ({receiver}) => answer_attach(receiver),
    sender_close: ({sender}) => open_links.delete(sender),
    receiver_close: ({receiver}) => open_links.delete(receiver),
    session_close: ({session}) => open_links.forEach((link) => {
        if (link.session === session) open_links.delete(link);
    }),
    sender_draining: ({sender}) => sender.set_drained(true),
    accepted: answer_outcome,
    rejected: answer_outcome,
    released: answer_outcome,
    modified: answer_outcome,
    settled: ({delivery}) => {
        delivery.settled = true;
    },
    message: ({receiver, delivery, message, connection}) => {
        const {state, hold, cut} = rule_of(receiver);
        if (cut) {
            connection.socket.destroy();
            forget_connection(connection);
        } else if (!hold) {
            settle(delivery, state || {outcome: 'accepted'});
            if (state) return;
            const address = link_address(receiver);
            const raw = Buffer.isBuffer(message) ? message : message.raw;
            (queues[address] = queues[address] || []).push({payload: raw.toString('hex'), format: delivery.format});
            send_queued(address);
        }
    },
});

run_commands({
    listen({options, users, anonymous}) {
        if (anonymous) rhea.sasl_server_mechanisms.enable_anonymous();
        if (users) rhea.sasl_server_mechanisms.enable_plain((name, password) => users[name] === password);
        const listen_options = Object.assign({
            host: '127.0.0.1',
            port: 0,
            sender_options: {treat_modified_as_released: false},
        }, options_of(options));
        return new Promise((resolve, reject) => {
            const server = rhea.listen(listen_options);
            server.on('listening', () => resolve({port: server.address().port}));
            server.on('error', reject);
            server.on('tlsClientError', () => undefined);
        });
    },
    rule({address, rule}) {
        rules[address] = rule;
    },
    put({address, message, payload, format}) {
        (queues[address] = queues[address] || []).push({message, payload, format});
        send_queued(address);
    },
    fail_settlement({error}) {
        settlement_error = error;
    },
    grant({address, credit}) {
        find_link(address).add_credit(credit);
    },
    drain_sender({address}) {
        find_link(address).drain_credit();
    },
    credit_of({address}) {
        return {credit: find_link(address).credit};
    },
    close_link_of({address, error}) {
        find_link(address).close(error_of(error));
    },
    end_session_of({address, error}) {
        find_link(address).session.end(error_of(error));
    },
    link_count() {
        return {count: open_links.size};
    },
    close({error}) {
        connections.forEach((connection) => connection.close(error_of(error)));
    },
    cut() {
        connections.forEach((connection) => {
            connection.socket.destroy();
            forget_connection(connection);
        });
    },
});
