'use strict';
/*
 * The part that rhea_client.js and rhea_server.js share.
 *
 * Commands are JSON lines on stdin: {"n": 1, "do": "send", ...}. The answer to a command is a line
 * with its number, {"n": 1, ...} or {"n": 1, "failed": "reason"}. Events of rhea are further lines,
 * {"event": "message", ...}. Values have the name of their AMQP type, {"t": "uint", "v": "1"}: bytes
 * as hex, integers as decimal strings, floats as the hex of their IEEE 754 bytes.
 */
const fs = require('fs');
const readline = require('readline');
const rhea = require('rhea');
const frames = require('rhea/lib/frames.js');

const types = rhea.types;

const NAMES = {
    Null: 'null', Boolean: 'boolean', True: 'boolean', False: 'boolean',
    Ubyte: 'ubyte', Ushort: 'ushort', Uint: 'uint', SmallUint: 'uint', Uint0: 'uint',
    Ulong: 'ulong', SmallUlong: 'ulong', Ulong0: 'ulong',
    Byte: 'byte', Short: 'short', Int: 'int', SmallInt: 'int', Long: 'long', SmallLong: 'long',
    Float: 'float', Double: 'double',
    Decimal32: 'decimal32', Decimal64: 'decimal64', Decimal128: 'decimal128',
    CharUTF32: 'char', Timestamp: 'timestamp', Uuid: 'uuid',
    Vbin8: 'binary', Vbin32: 'binary', Str8: 'string', Str32: 'string', Sym8: 'symbol', Sym32: 'symbol',
    List0: 'list', List8: 'list', List32: 'list', Map8: 'map', Map32: 'map',
    Array8: 'array', Array32: 'array',
};

// The constructors of array elements: the widest of each type, which fits every value.
const ELEMENTS = {
    null: types.Null, boolean: types.Boolean, ubyte: types.Ubyte, ushort: types.Ushort,
    uint: types.Uint, ulong: types.Ulong, byte: types.Byte, short: types.Short, int: types.Int,
    long: types.Long, float: types.Float, double: types.Double, decimal32: types.Decimal32,
    decimal64: types.Decimal64, decimal128: types.Decimal128, char: types.CharUTF32,
    timestamp: types.Timestamp, uuid: types.Uuid, binary: types.Vbin32, string: types.Str32,
    symbol: types.Sym32, list: types.List32, map: types.Map32,
};

function bytes(hex) {
    return Buffer.from(hex, 'hex');
}

function wide(text) {
    const n = Number(text);
    if (Number.isSafeInteger(n)) return n;
    const buffer = Buffer.alloc(8);
    buffer.writeBigUInt64BE(BigInt.asUintN(64, BigInt(text)));
    return buffer;
}

function wide_text(value, signed) {
    if (!Buffer.isBuffer(value)) return String(value);
    return String(signed ? value.readBigInt64BE() : value.readBigUInt64BE());
}

/** Return a value of rhea for a value with the name of its type. */
function untag(o) {
    const v = o.v;
    switch (o.t) {
    case 'null': return types.Null();
    case 'ulong': case 'long': return types['wrap_' + o.t](wide(v));
    case 'ubyte': case 'ushort': case 'uint': case 'byte': case 'short': case 'int':
    case 'timestamp': return types['wrap_' + o.t](Number(v));
    case 'float': return types.wrap_float(bytes(v).readFloatBE());
    case 'double': return types.wrap_double(bytes(v).readDoubleBE());
    case 'decimal32': return types.Decimal32(bytes(v));
    case 'decimal64': return types.Decimal64(bytes(v));
    case 'decimal128': return types.Decimal128(bytes(v));
    case 'char': return types.wrap_char(v.codePointAt(0));
    case 'uuid': case 'binary': return types['wrap_' + o.t](bytes(v));
    case 'list': return types.wrap_list(v.map(untag));
    case 'map': return types.wrap_map_as_map(new Map(v.map((pair) => pair.map(untag))));
    case 'array': return types.wrap_array(
        v.map((item) => untag(item).value), ELEMENTS[o.of].typecode, o.d && untag(o.d));
    case 'described': return types.described(untag(o.d), untag(v));
    default: return types['wrap_' + o.t](v);
    }
}

/** Return a value with the name of its type for a value of rhea. */
function tag(o) {
    if (o.descriptor) {
        const bare = Object.assign(Object.create(Object.getPrototypeOf(o)), o);
        delete bare.descriptor;
        return {t: 'described', d: tag(o.descriptor), v: tag(bare)};
    }
    const t = NAMES[o.type.name];
    const v = o.value;
    const buffer = Buffer.alloc(t === 'float' ? 4 : 8);
    switch (t) {
    case 'null': return {t};
    case 'boolean': return {t, v: Boolean(v)};
    case 'string': case 'symbol': return {t, v};
    case 'ulong': return {t, v: wide_text(v, false)};
    case 'long': return {t, v: wide_text(v, true)};
    case 'float': buffer.writeFloatBE(v); return {t, v: buffer.toString('hex')};
    case 'double': buffer.writeDoubleBE(v); return {t, v: buffer.toString('hex')};
    case 'char': return {t, v: String.fromCodePoint(v)};
    case 'timestamp': return {t, v: String(v.getTime())};
    case 'list': return {t, v: v.map(tag)};
    case 'map': {
        const pairs = [];
        for (let i = 0; i < v.length; i += 2) pairs.push([tag(v[i]), tag(v[i + 1])]);
        return {t, v: pairs};
    }
    case 'array': {
        const {typecode, descriptor} = o.array_constructor;
        const array = {t, of: NAMES[types.by_code[typecode].name], v: v.map(tag)};
        return descriptor ? Object.assign(array, {d: tag(descriptor)}) : array;
    }
    default: return {t, v: Buffer.isBuffer(v) ? v.toString('hex') : String(v)};
    }
}

/** Return the object of rhea for an object whose values have the names of their types. */
function untag_all(o) {
    return o && Object.fromEntries(Object.entries(o).map(([key, value]) => [key, untag(value)]));
}

function error_of(o) {
    return o && Object.assign({}, o, o.info && {info: untag_all(o.info)});
}

const MAPS = ['delivery_annotations', 'message_annotations', 'application_properties', 'footer'];
const IDS = ['message_id', 'correlation_id'];

function message_of(o) {
    const message = {};
    for (const [key, value] of Object.entries(o)) {
        if (MAPS.includes(key)) message[key] = untag_all(value);
        else if (key === 'data') message.body = rhea.message.data_sections(value.map(bytes));
        else if (key === 'sequence') message.body = rhea.message.sequence_section(untag(value));
        else if (key === 'body' || IDS.includes(key)) message[key] = untag(value);
        else message[key] = untag(value).value;
    }
    return message;
}

// rhea returns messages without the types of their values, so keep the payload for its reader.
const decode = rhea.message.decode;
rhea.message.decode = (buffer) => Object.assign(decode(buffer), {raw: buffer});

function sections_of(buffer) {
    const reader = new types.Reader(buffer);
    const sections = {};
    while (reader.remaining()) {
        const {d, v} = tag(reader.read());
        (sections[d.v] = sections[d.v] || []).push(v);
    }
    return sections;
}

const counts = {frames_in: 0, frames_out: 0, empty_in: 0, empty_out: 0, largest_in: 0, largest_out: 0};

function count(way, frame, size) {
    counts['frames_' + way] += 1;
    if (!frame.performative) counts['empty_' + way] += 1;
    counts['largest_' + way] = Math.max(counts['largest_' + way], size);
}
const {read_frame, write_frame} = frames;
frames.read_frame = (buffer) => {
    const frame = read_frame(buffer);
    count('in', frame, buffer.length);
    return frame;
};
frames.write_frame = (frame) => {
    const buffer = write_frame(frame);
    count('out', frame, buffer.length);
    return buffer;
};

function write_line(line) {
    process.stdout.write(JSON.stringify(line) + '\n');
}

const links = {};
const deliveries = {};

function delivery_of({link, id}) {
    const delivery = deliveries[link + ' ' + id];
    if (!delivery) throw new Error(`no delivery ${id} on ${link}`);
    return delivery;
}

/** Return the address of a terminus, or null. rhea has an object even for a null terminus. */
function address_of(terminus) {
    return terminus && terminus.address !== undefined ? terminus.address : null;
}

function describe(name, context) {
    const line = {event: name};
    const link = context.sender || context.receiver;
    if (link) {
        line.link = link.name;
        line.credit = link.credit;
        line.source = address_of(link.source);
        line.target = address_of(link.target);
        line.snd_settle_mode = link.snd_settle_mode;
        line.rcv_settle_mode = link.rcv_settle_mode;
        links[link.name] = link;
    }
    if (context.session) line.channel = context.session.local.channel;
    const endpoint = link || context.session || context.connection;
    if (endpoint && endpoint.error && endpoint.error.described) {
        line.error = tag(endpoint.error.described());
    } else if (context.error) {
        line.error = {condition: context.error.condition, description: String(context.error.message)};
    }
    if ('reconnecting' in context) line.reconnecting = context.reconnecting;
    if (name === 'connection_open') describe_connection(line, context.connection);
    if (context.delivery) describe_delivery(line, context);
    return line;
}

function describe_connection(line, connection) {
    line.open = tag(connection.remote.open.described());
    const sasl = connection.sasl_transport;
    line.user = sasl && (sasl.username || (sasl.selected && sasl.selected.username));
    const certificate = connection.get_peer_certificate();
    if (certificate && certificate.subject) line.certificate = certificate.subject.CN;
}

function describe_delivery(line, {delivery, message}) {
    line.id = delivery.id;
    line.tag = delivery.tag.toString('hex');
    line.format = delivery.format;
    line.settled = delivery.remote_settled;
    deliveries[line.link + ' ' + line.id] = delivery;
    const state = delivery.remote_state;
    if (state && state.described) line.state = tag(state.described());
    if (message === undefined) return;
    const raw = Buffer.isBuffer(message) ? message : message.raw;
    line.payload = raw.toString('hex');
    if (delivery.format === 0) line.sections = sections_of(raw);
}

const EVENTS = [
    ...Object.values(rhea.ConnectionEvents), ...Object.values(rhea.SessionEvents),
    ...Object.values(rhea.SenderEvents), ...Object.values(rhea.ReceiverEvents),
];

/** Report all events of a container. `handlers` handle an event before it is reported. */
function report_events(container, handlers) {
    for (const name of new Set(EVENTS)) {
        container.on(name, (context) => {
            if (name === 'error' || name === 'protocol_error') {
                write_line({event: name, error: {description: String(context.message)}});
                return;
            }
            const line = describe(name, context);
            if (handlers[name]) handlers[name](context);
            write_line(line);
        });
    }
}

const OUTCOMES = {
    accepted: (delivery) => delivery.accept(),
    released: (delivery) => delivery.release(),
    rejected: (delivery, {error}) => delivery.reject(error_of(error)),
    modified: (delivery, {fields}) => delivery.modified(
        Object.assign({}, fields, {message_annotations: untag_all(fields.message_annotations)})),
};

function settle(delivery, state) {
    OUTCOMES[state.outcome](delivery, state);
}

/** Settle a delivery that we sent with the state of the receiver, or reject it with an error. */
function confirm(delivery, error) {
    let state = delivery.remote_state;
    if (error) state = rhea.message.rejected({error: error_of(error)});
    delivery.update(true, state.described());
}

/** Return options for rhea, with the content of files instead of their names. */
function options_of(o) {
    const options = Object.assign({}, o);
    for (const key of ['key', 'cert', 'ca']) {
        if (options[key]) options[key] = fs.readFileSync(options[key]);
    }
    return options;
}

function link_named(name) {
    if (!links[name]) throw new Error(`no link ${name}`);
    return links[name];
}

const commands = {
    send({link, message, payload, format, tag}) {
        const sender = link_named(link);
        const delivery_tag = tag && bytes(tag);
        const content = message ? message_of(message) : bytes(payload);
        return {id: sender.send(content, delivery_tag, message ? undefined : format || 0).id};
    },
    credit({link, credit}) {
        link_named(link).add_credit(credit);
    },
    drain({link}) {
        link_named(link).drain_credit();
    },
    settle(o) {
        settle(delivery_of(o), o);
    },
    confirm(o) {
        confirm(delivery_of(o));
    },
    close_link({link, error}) {
        link_named(link).close(error_of(error));
    },
    end_session({link, error}) {
        link_named(link).session.end(error_of(error));
    },
    encode({message}) {
        return {payload: rhea.message.encode(message_of(message)).toString('hex')};
    },
    decode({payload}) {
        return {sections: sections_of(bytes(payload))};
    },
    counts() {
        return counts;
    },
};

/** Run the commands on stdin until it ends. */
function run_commands(more_commands) {
    Object.assign(commands, more_commands);
    readline.createInterface({input: process.stdin}).on('line', async (line) => {
        const command = JSON.parse(line);
        try {
            const answer = await commands[command.do](command);
            write_line(Object.assign({n: command.n}, answer));
        } catch (error) {
            write_line({n: command.n, failed: String(error.stack)});
        }
    }).on('close', () => process.exit(0));
}

module.exports = {
    rhea, report_events, run_commands, links, settle, confirm, options_of, error_of, address_of, message_of, bytes,
};
