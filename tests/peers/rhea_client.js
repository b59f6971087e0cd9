'use strict';
/* rhea as a client: connects, attaches, sends, receives and settles as it is told. */
const {rhea, watch, obey, links, options_of, error_of, untag_all} = require('./rhea_talk.js');

let connection;
const sessions = {};

watch(rhea, {
    sender_draining: ({sender}) => sender.set_drained(true),
});

function attach(kind, {name, session, options}) {
    const where = session === undefined ? connection : sessions[session];
    const given = Object.assign({name}, options);
    if (given.properties) given.properties = untag_all(given.properties);
    links[name] = where['open_' + kind](given);
}

obey({
    connect({options}) {
        connection = rhea.connect(options_of(options));
    },
    begin({name}) {
        sessions[name] = connection.create_session();
        sessions[name].begin();
    },
    sender(o) {
        attach('sender', o);
    },
    receiver(o) {
        attach('receiver', o);
    },
    close({error}) {
        connection.close(error_of(error));
    },
    cut() {
        connection.socket.destroy(new Error('cut'));
    },
});
