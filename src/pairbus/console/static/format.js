// Numbers, times and names as text. No function here touches the page.

const MAX_NAME = 300;
const SMALLEST_AMOUNT = 0.0001;
const NARROW_SPACE = "\u202f";

/** Return a whole number with its digits in groups of three. */
export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = String(Math.round(Math.abs(value)));
  const grouped = digits.replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
  return value < 0 ? `-${grouped}` : grouped;
}

/** Return a number with a noun: "1 message", "12 messages". */
export function counted(value, noun, plural = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** Return a rate in messages a second. */
export function rate(value) {
  if (!Number.isFinite(value)) return "–";
  return value > 0 && value < 10 ? String(Math.round(value * 10) / 10) : count(value);
}

/** Return a duration in its two largest units, or only the largest below an hour. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) return `${s} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return joined(hours, "h", minutes % 60, "min");
  return joined(Math.floor(hours / 24), "d", hours % 24, "h");
}

function joined(large, largeUnit, small, smallUnit) {
  const text = `${count(large)} ${largeUnit}`;
  return small ? `${text} ${small} ${smallUnit}` : text;
}

/** Return the time that a drain still needs: at least a second if it needs any. */
export function timeToGo(seconds) {
  return duration(seconds > 0 ? Math.max(1, seconds) : seconds ?? NaN);
}

/** Return the time since an ISO 8601 time, or a dash. `now` is in milliseconds. */
export function age(iso, now) {
  const time = Date.parse(iso ?? "");
  return Number.isNaN(time) ? "–" : duration((now - time) / 1000);
}

/** Return a local time of day, with the date unless it is today. */
export function clock(iso, now) {
  const time = new Date(iso ?? "");
  if (Number.isNaN(time.getTime())) return "–";
  const two = (number) => String(number).padStart(2, "0");
  const hours = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  if (time.toDateString() === new Date(now).toDateString()) return hours;
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${hours}`;
}

/** Return an amount of money. Small amounts have four decimals. */
export function money(value, currency) {
  if (!Number.isFinite(value)) return "–";
  if (value > 0 && value < SMALLEST_AMOUNT) return `below ${SMALLEST_AMOUNT} ${currency}`;
  const [whole, decimals] = value.toFixed(value !== 0 && Math.abs(value) < 1 ? 4 : 2).split(".");
  return `${count(Number(whole))}.${decimals} ${currency}`;
}

/** Return untrusted text as it can be shown: characters that are invisible or change the direction
 * of the text around them are replaced by visible ones, and long text is cut. */
export function visible(text, limit = MAX_NAME) {
  const source = String(text ?? "");
  const cut = source.length > limit ? source.slice(0, limit) : source;
  const shown = cut.replace(INVISIBLE, (character) => {
    const code = character.charCodeAt(0).toString(16).toUpperCase();
    return `⟨U+${code.padStart(4, "0")}⟩`;
  });
  return source.length > limit ? `${shown}… (${count(source.length)} characters)` : shown;
}

/** Like `visible`, for text of several lines such as a body: line breaks and tabs are kept. */
export function visibleLines(text, limit) {
  return String(text ?? "")
    .slice(0, limit + 1)
    .split(/(\r?\n|\t)/)
    .map((part, index) => (index % 2 ? part : visible(part, limit)))
    .join("");
}

// C0 and C1 controls, soft hyphen, zero-width characters, bidirectional controls, lone surrogates.
const INVISIBLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
