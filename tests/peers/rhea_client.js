'use strict';
/* rhea as a client: it connects, attaches, sends, receives and settles on command. */
const {rhea, report_events, run_commands, links, options_of, error_of} = require('./rhea_commands.js');

let connection;
const sessions = {};

report_events(rhea, {
    sender_draining: ({sender}) => sender.set_drained(true),
});

function attach(kind, {name, session, options}) {
    const parent = session === undefined ? connection : sessions[session];
    links[name] = parent['open_' + kind](Object.assign({name}, options));
}

run_commands({
    connect({options}) {
        connection = rhea.connect(options_of(options));
    },
    begin({name}) {
        sessions[name] = connection.create_session();
        sessions[name].begin();
    },
    end_named_session({name, error}) {
        sessions[name].end(error_of(error));
    },
    sender(arguments_) {
        attach('sender', arguments_);
    },
    receiver(arguments_) {
        attach('receiver', arguments_);
    },
    close({error}) {
        connection.close(error_of(error));
    },
    cut() {
        connection.socket.destroy(new Error('cut'));
    },
});
