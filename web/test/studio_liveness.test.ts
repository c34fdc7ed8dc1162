// The word beside the title.
import { equal } from "node:assert/strict";
import { test } from "node:test";

import { wordOf } from "../src/studio/shell/liveness";

test("live is what goes on and is connected", () => {
  for (const status of ["running", "paused", "testing", "idle"]) {
    equal(wordOf("live", status, "open"), "Live");
    equal(wordOf("live", status, "lost"), "Last seen");
  }
});

test("what has ended or is gone is not, connected or not", () => {
  for (const connection of ["open", "connecting", "lost"]) {
    equal(wordOf("live", "done", connection), "Ended");
    equal(wordOf("live", "lost", connection), "Gone");
  }
});

test("what was never live is called what it is", () => {
  equal(wordOf("recording", "idle", "open"), "Recording");
  equal(wordOf("run", "done", "lost"), "Run");
  equal(wordOf("nothing", "idle", "open"), "Waiting");
  equal(wordOf("other", "idle", "open"), "other");
});
