// Messages over the socket, and parsing of typed values.
import { deepEqual, equal, ok, throws } from "node:assert/strict";
import { test } from "node:test";

import { isPossible, clampInteger, pluralOf } from "../src/studio/control/actions";
import { formatField, formatFixed, labelOf, parseValue, splitWords } from "../src/studio/control/parameter_values";
import type { FrameHead, Json } from "../src/studio/messages";
import { Signal } from "../src/studio/signal";
import { retryDelay, socketAddress, splitFrame } from "../src/studio/socket";

function frame(head: object, payload: number[], magic = "TCHF"): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(head));
  const start = Math.ceil((8 + text.length) / 8) * 8;
  const bytes = new Uint8Array(start + payload.length);
  bytes.set(new TextEncoder().encode(magic));
  new DataView(bytes.buffer).setUint32(4, text.length, true);
  bytes.set(text, 8);
  bytes.set(payload, start);
  return bytes.buffer;
}

test("a binary message is cut into its header and its bytes", () => {
  for (const layer of ["x", "xy", "Ünïcode", "a longer name"]) {
    const [head, bytes] = splitFrame(frame({ layer, count: 3 }, [1, 2, 3]));
    deepEqual([(head as FrameHead).layer, [...bytes]], [layer, [1, 2, 3]]);
  }
});

test("what is not a frame is said to be none", () => {
  throws(() => splitFrame(new ArrayBuffer(3)), /not a frame/);
  throws(() => splitFrame(frame({ count: 0 }, [], "TCHX")), /not a frame/);
  throws(() => splitFrame(frame({ layer: "a", count: 9 }, [1])), /shorter than it says/);
  const short = frame({ count: 0 }, []).slice(0, 10);
  throws(() => splitFrame(short), /inside its header/);
});

test("the socket lies beside the page, whatever stands before it", () => {
  equal(socketAddress("http://127.0.0.1:4321/#plots"), "ws://127.0.0.1:4321/ws");
  equal(
    socketAddress("https://hub.example.org/user/me/proxy/4321/?a=1"),
    "wss://hub.example.org/user/me/proxy/4321/ws",
  );
});

test("tries to connect come further and further apart, to five seconds", () => {
  equal(retryDelay(0, 0.5), 250);
  equal(retryDelay(3, 0.5), 2000);
  ok(retryDelay(1000, 0.5) <= 5000);
});

test("a signal tells its watchers of changes only", () => {
  const signal = new Signal({ a: 1, b: 2 });
  const heard: number[] = [];
  const end = signal.subscribe(({ a }) => heard.push(a));
  signal.patch({ a: 1 });
  signal.patch({ a: 5 });
  end();
  signal.patch({ a: 6 });
  deepEqual([heard, signal.get()], [[5], { a: 6, b: 2 }]);
});

const number = { kind: "number", choices: [], minimum: 0, maximum: 10, value: 1 as Json };

test("what is typed becomes a value or a sentence", () => {
  deepEqual(parseValue(number, " 1e-3 "), { value: 0.001 });
  for (const text of ["", "abc", "-1", "11", "Infinity", "NaN"]) ok("wrong" in parseValue(number, text), text);
  ok("wrong" in parseValue({ ...number, kind: "integer" }, "1.5"));
  deepEqual(parseValue({ ...number, kind: "choice", choices: ["adam"] }, "adam"), { value: "adam" });
  ok("wrong" in parseValue({ ...number, kind: "choice", choices: ["adam"] }, "sgd"));
  deepEqual(parseValue({ ...number, kind: "text" }, "<b>"), { value: "<b>" });
  deepEqual(parseValue({ ...number, kind: "flag" }, "True"), { value: true });
});

test("a field is called by what its heading does not say already", () => {
  equal(labelOf("optimizers.adam.lr", "adam · optimizer"), "lr");
  equal(labelOf("digits.path", "digits · dataset"), "path");
  equal(labelOf("watch.every", "session"), "watch.every");
  equal(labelOf("train.epochs", "train"), "epochs");
  equal(labelOf("lr", ""), "lr");
});

test("several of what a loop counts have a plural", () => {
  deepEqual(["batch", "trial"].map(pluralOf), ["batches", "trials"]);
});

test("lists are typed with commas and stay lists", () => {
  const list = { ...number, kind: "integer", value: [1, 2] as Json };
  equal(formatField(list.value), "1, 2");
  deepEqual(parseValue(list, "[3, 4,5]"), { value: [3, 4, 5] });
  ok("wrong" in parseValue(list, "3, x"));
});

test("a busy run can be stopped and nothing else; a page without control can do nothing", () => {
  const can = ["train", "stop"];
  const possible = (status: string, controller = "you", connected = true) =>
    ["train", "stop", "init"].map((action) => isPossible(action, { status, can }, controller, connected));
  deepEqual(possible("paused"), [true, false, false]);
  deepEqual(possible("running"), [false, true, false]);
  deepEqual(possible("testing", "nobody"), [false, true, false]);
  deepEqual(possible("paused", "other"), [false, false, false]);
  deepEqual(possible("paused", "you", false), [false, false, false]);
});

test("a number field holds a whole number of its range", () => {
  deepEqual(
    [clampInteger("7.6", 0, 10), clampInteger("-3", 1, 10), clampInteger("99", 1, 10), clampInteger("x", 1, 10)],
    [8, 1, 10, 1],
  );
});

test("counts are written in groups of three digits, seeds are not", () => {
  equal(formatFixed("parameters", 6162560), "6,162,560");
  equal(formatFixed("seed", 6162560), "6162560");
  equal(formatFixed("seconds", 0.6721), "0.6721");
  equal(formatFixed("error", 0.680611371994), "0.680611");
  equal(formatFixed("mode", "eval"), "eval");
});

test("long names may be broken between their words", () => {
  deepEqual(splitWords("LlamaForCausalLM"), ["Llama", "For", "Causal", "LM"]);
  deepEqual(splitWords("runs/my.first"), ["runs/", "my.", "first"]);
  deepEqual(splitWords("6,162,560"), ["6,162,560"]);
  deepEqual(splitWords("0.680611"), ["0.680611"]);
  deepEqual(splitWords("features.0"), ["features.", "0"]);
});
