// Written by `python web/message_types.py` from src/torcheer/vocabulary: change it there.

/** Types of floating-point numbers: bits of the significand, and the exponent of the smallest step. */
export const FLOATS: Record<string, [number, number]> = {
  float16: [11, -24],
  float32: [24, -149],
  float64: [53, -1074],
  bfloat16: [8, -133],
  float8_e4m3fn: [4, -9],
  float8_e5m2: [3, -16],
  float8_e4m3fnuz: [4, -10],
  float8_e5m2fnuz: [3, -17],
  float4_e2m1fn_x2: [2, -1],
};

/** What a log calls the variables of a page. */
export const LOG_NAMES: Record<string, string> = {
  Act: "output",
  Grad: "grad",
  Wt: "weight",
  WtGrad: "weight_grad",
  DWt: "update",
};

/** A number to colour by. */
export interface Quantity {
  name: string;
  title: string; // in the list to choose from
  legend: string; // what its numbers are
  unit: "seconds" | "bytes" | "count" | ""; // how they are written; "": with two digits
  source: "pass" | "log" | "comparison"; // what has them
  missing: string; // where nothing has them: what to do
  is_mean: boolean; // of several parts: their sum says nothing
  powers: [number, number] | null; // of ten, between which the colours go; null: the shown numbers say it
}

export const QUANTITIES: Record<string, Quantity> = {
  time: {"name": "time", "title": "time", "legend": "time", "unit": "seconds", "source": "pass", "missing": "A recorded pass has it: tl.show(model, inputs)", "is_mean": false, "powers": null},
  memory: {"name": "memory", "title": "memory", "legend": "size of results", "unit": "bytes", "source": "pass", "missing": "A recorded pass has it: tl.show(model, inputs)", "is_mean": false, "powers": null},
  flops: {"name": "flops", "title": "FLOPs", "legend": "floating point operations", "unit": "count", "source": "pass", "missing": "A recorded pass has it: tl.show(model, inputs)", "is_mean": false, "powers": null},
  parameters: {"name": "parameters", "title": "parameters", "legend": "parameters", "unit": "count", "source": "pass", "missing": "A recorded pass has it: tl.show(model, inputs)", "is_mean": false, "powers": null},
  gradient: {"name": "gradient", "title": "gradient", "legend": "mean |gradient|", "unit": "", "source": "pass", "missing": "A recorded pass has it: save_gradients=True, then history.backward(loss)", "is_mean": true, "powers": null},
  gradient_norm: {"name": "gradient_norm", "title": "gradient norm", "legend": "norm of the gradient", "unit": "", "source": "log", "missing": "A watch has it: tl.watch(model)", "is_mean": true, "powers": null},
  update: {"name": "update", "title": "update size", "legend": "size of the update", "unit": "", "source": "log", "missing": "A watch with an optimizer has it: tl.watch(model, optimizer=optimizer)", "is_mean": true, "powers": null},
  nan: {"name": "nan", "title": "NaN", "legend": "NaN", "unit": "", "source": "log", "missing": "A watch counts them: tl.watch(model)", "is_mean": false, "powers": null},
  alert: {"name": "alert", "title": "alerts", "legend": "alerts", "unit": "", "source": "log", "missing": "No rule has found anything so far", "is_mean": false, "powers": null},
  difference: {"name": "difference", "title": "difference", "legend": "relative difference", "unit": "", "source": "comparison", "missing": "Two side by side have it: torcheer studio A B", "is_mean": true, "powers": [-6, 0]},
};
