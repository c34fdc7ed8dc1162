// The liveness label beside the title.
import { equal, match } from "node:assert/strict";
import { test } from "node:test";

import { livenessLabel, unwatchedText } from "../src/studio/shell/liveness";

test("live is what goes on and is connected", () => {
  for (const status of ["running", "paused", "testing", "idle"]) {
    equal(livenessLabel("live", status, "open"), "Live");
    equal(livenessLabel("live", status, "lost"), "Last seen");
  }
});

test("what has ended or is gone is not, connected or not", () => {
  for (const connection of ["open", "connecting", "lost"]) {
    equal(livenessLabel("live", "done", connection), "Ended");
    equal(livenessLabel("live", "failed", connection), "Failed");
    equal(livenessLabel("live", "lost", connection), "Gone");
  }
});

test("what was never live is called what it is", () => {
  equal(livenessLabel("recording", "idle", "open"), "Recording");
  equal(livenessLabel("run", "done", "lost"), "Run");
  equal(livenessLabel("nothing", "idle", "open"), "Waiting");
  equal(livenessLabel("other", "idle", "open"), "other");
});

test("where no watch runs the bell says what is found without one and how to start one", () => {
  match(unwatchedText("live", "running", "batch"), /^No watch looks at .* NaN and infinities are .*tl\.watch\(model\)/);
  match(unwatchedText("live", "done", "batch"), /^No watch looked at this run's layers.*tl\.watch\(model\)/);
  match(unwatchedText("run", "done", "batch"), /^No watch looked at this run's layers/);
  match(unwatchedText("pass", "idle", "batch"), /^No rules judge what is shown here/);
  equal(unwatchedText("live", "running", "trial"), "No rules judge a simulation.");
});
